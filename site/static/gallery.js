// The gallery's filter: by words and by what the compiler found. What is chosen stands in the address, to be
// linked to.
const form = document.querySelector("form.filter");

if (form) {
    const cells = [...document.querySelectorAll("ul.cells > li")];
    const count = document.querySelector(".count");

    const filter = () => {
        const words = form.words.value.toLowerCase().split(/\s+/).filter(Boolean);
        const chosen = [...form.querySelectorAll("select")].filter(menu => menu.value);
        let shown = 0;
        for (const cell of cells) {
            const text = cell.textContent.toLowerCase();
            const fits = words.every(word => text.includes(word)) &&
                chosen.every(menu => cell.dataset[menu.name] === menu.value);
            cell.hidden = !fits;
            shown += fits;
        }
        count.textContent = shown === 1 ? "1 cell" : `${shown} cells`;
        const query = new URLSearchParams([...new FormData(form)].filter(([, value]) => value)).toString();
        history.replaceState(null, "", query ? `?${query}` : location.pathname);
    };

    for (const [name, value] of new URLSearchParams(location.search))
        if (form.elements[name])
            form.elements[name].value = value;
    form.addEventListener("input", filter);
    form.addEventListener("submit", event => event.preventDefault());
    form.addEventListener("reset", () => setTimeout(filter));
    filter();
}
