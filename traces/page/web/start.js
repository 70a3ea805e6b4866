"use strict";
// For tests and for who writes scripts in the console: window.pipewright is what the keys do.

window.pipewright = Page.api;
Page.start().catch((error) => {
  document.documentElement.dataset.failed = String(error);
  document.getElementById("details").textContent = `This page could not be drawn: ${error}`;
  throw error;
});
