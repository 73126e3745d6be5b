if (navigator.language.toLowerCase().startsWith("ko")) {
  document.getElementById("in-ko").checked = true;
  document.documentElement.lang = "ko";
}
