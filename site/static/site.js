// A page that is a file may not read others, from which the search takes its excerpts: it shows titles alone then.
if (location.protocol === "file:" && typeof DOCUMENTATION_OPTIONS !== "undefined")
    DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;

// Whatever scrolls sideways can be reached and scrolled by the keyboard: code, tables, equations, diagrams.
const SCROLLS = "pre, .table-wrapper, .formula, .scroll, .tables, dt.sig";

function reachable() {
    for (const box of document.querySelectorAll(SCROLLS)) {
        if (box.scrollWidth > box.clientWidth + 1)
            box.tabIndex = 0;
        else
            box.removeAttribute("tabindex");
    }
}

addEventListener("load", reachable);
addEventListener("resize", reachable);
for (const details of document.querySelectorAll("details"))
    details.addEventListener("toggle", reachable);
