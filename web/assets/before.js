// The remembered theme, before the first paint. Storage may be forbidden; then the system decides.
try {
  const theme = localStorage.getItem("plimsoll-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {}

// The page is served with the answer to one question. A link asks another one, which no server can tell: it is behind the #.
// Until the engine has run it, what was served is hidden.
const address = location.search + location.hash;
if (address !== "" && address !== document.currentScript.dataset.opening) document.documentElement.dataset.asked = "";
