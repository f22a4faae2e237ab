// Runs before the first paint, so that a chosen theme does not flash. Without a choice, the system's applies.
"use strict";

(() => {
  const CHOICES = ["system", "light", "dark"];
  const KEY = "ctxbudget-theme";

  const kept = () => {
    try {
      const value = localStorage.getItem(KEY);
      return CHOICES.includes(value) ? value : "system";
    } catch {
      return "system"; // storage may be switched off
    }
  };

  const apply = (choice) => {
    document.documentElement.dataset.theme = choice;
    const button = document.getElementById("theme");
    if (button) button.textContent = `Theme: ${choice}`;
  };

  apply(kept());
  document.addEventListener("DOMContentLoaded", () => {
    apply(kept());
    document.getElementById("theme").addEventListener("click", () => {
      const next = CHOICES[(CHOICES.indexOf(document.documentElement.dataset.theme) + 1) % CHOICES.length];
      try {
        localStorage.setItem(KEY, next);
      } catch {
        // Then it lasts as long as the page.
      }
      apply(next);
    });
  });
})();
