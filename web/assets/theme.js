// The remembered theme, before the first paint. Storage may be forbidden; then the system decides.
try {
  const theme = localStorage.getItem("plimsoll-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {}
