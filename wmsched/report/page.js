// Sorts the table of functions by the column whose heading is clicked; what is not known comes last.
for (const [place, head] of document.querySelectorAll("#functions thead th").entries()) {
  head.querySelector("button").addEventListener("click", () => {
    const body = document.querySelector("#functions tbody");
    const down = head.getAttribute("aria-sort") !== "descending";
    for (const other of head.parentNode.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const value = row => row.children[place].dataset.v;
    const compare = (a, b) => {
      if (a === "" || b === "") return (a === "") - (b === "");
      const order = isNaN(a) || isNaN(b) ? a.localeCompare(b) : a - b;
      return down ? -order : order;
    };
    body.append(...[...body.rows].sort((a, b) => compare(value(a), value(b))));
  });
}
