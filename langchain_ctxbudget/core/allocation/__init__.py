"""How a budget is divided between the layers."""
