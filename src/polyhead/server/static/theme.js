// Theme of the page: that of the system, light or dark; kept in the local storage.

const KEY = "polyhead-theme";
const SYSTEM = "screen and (prefers-color-scheme: dark)";
const MEDIA = { auto: SYSTEM, light: "not all", dark: "screen" };
const dark = [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules]).filter((rule) => rule.conditionText === SYSTEM);

export const THEMES = Object.keys(MEDIA);

export function theme() {
  const name = localStorage.getItem(KEY);
  return THEMES.includes(name) ? name : "auto";
}

// Switches the style rules of the dark colours; paper is always light.
export function setTheme(name) {
  localStorage.setItem(KEY, name);
  for (const rule of dark) rule.media.mediaText = MEDIA[name];
  document.documentElement.style.colorScheme = name === "auto" ? "" : name;
}
