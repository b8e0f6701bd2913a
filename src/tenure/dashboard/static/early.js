// Runs before the first paint, so that a chosen theme does not flash the other one.
{
  let theme = null;
  try {
    theme = localStorage.getItem("tenure-theme");
  } catch {
    // Storage is blocked: the theme of the system applies.
  }
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
}
