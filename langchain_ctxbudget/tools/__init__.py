"""The tools of a call: read once, searched, chosen, told to a model. Pure."""

from langchain_ctxbudget.tools.arguments import problem_of_arguments
from langchain_ctxbudget.tools.choosing import choose
from langchain_ctxbudget.tools.finding import find_text, names_by_server, nothing_found
from langchain_ctxbudget.tools.index import ToolIndex, order_of
from langchain_ctxbudget.tools.known import KnownTool
from langchain_ctxbudget.tools.signatures import full_signature, short_signature
from langchain_ctxbudget.tools.tool_set import ToolSet
