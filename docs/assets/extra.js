// On phones a row of a table becomes a card (extra.css) if the table has sentences: mark it, and label its cells.
for (const table of document.querySelectorAll(".md-typeset table:not([class])")) {
  const rows = [...table.tBodies].flatMap((body) => [...body.rows]);
  const headings = table.rows[0].cells;
  const long = (row) => [...row.cells].slice(1).some((cell) => cell.textContent.length > 40);
  if (headings.length < 2 || !headings[1].textContent || !(table.closest(".claims") || rows.some(long))) continue;
  table.dataset.cards = "";
  for (const row of rows) {
    for (const cell of [...row.cells].slice(1)) {
      const heading = headings[cell.cellIndex].textContent.trim();
      if (heading) cell.dataset.label = heading;
    }
  }
}

// A browser breaks lines after a hyphen. An option such as --workers stays whole; what is copied does not change.
for (const code of document.querySelectorAll(".md-typeset code")) {
  const walker = document.createTreeWalker(code, NodeFilter.SHOW_TEXT);
  const texts = [];
  while (walker.nextNode()) texts.push(walker.currentNode);
  for (const text of texts.filter((text) => /-\w/.test(text.data))) {
    const words = text.data.split(/(\s+)/).map((word) => {
      if (!/-\w/.test(word) || word.length > 32) return word;
      const whole = document.createElement("span");
      whole.style.whiteSpace = "nowrap";
      whole.textContent = word;
      return whole;
    });
    text.replaceWith(...words);
  }
}

// A long line of code goes on below, two columns further in than it begins.
for (const line of document.querySelectorAll(".md-typeset :not(.language-text) > pre > code > span[id]")) {
  const indent = line.textContent.match(/^ */)[0].length + 2;
  line.style.cssText = `display: block; padding-left: ${indent}ch; text-indent: -${indent}ch`;
}

// A table that is wider than the screen can be scrolled by keyboard, too. The theme puts it into its scroller later.
const scrollers = new ResizeObserver((entries) => {
  for (const { target } of entries) target.tabIndex = target.scrollWidth > target.clientWidth ? 0 : -1;
});
addEventListener("load", () => {
  for (const scroller of document.querySelectorAll(".md-typeset__scrollwrap")) scrollers.observe(scroller);
});

// A film (GIF) has a button that stops it. It begins stopped, as a still, if the reader prefers reduced motion.
for (const film of document.querySelectorAll('.md-typeset img[src$=".gif"]')) {
  const still = document.createElement("canvas");
  still.role = "img";
  still.ariaLabel = film.alt;
  const button = document.createElement("button");
  button.className = "film-button";
  const show = (playing) => {
    if (playing) still.replaceWith(film);
    else film.replaceWith(still);
    button.textContent = playing ? "Stop" : "Play";
    button.ariaLabel = `${button.textContent}: ${film.alt}`;
  };
  button.addEventListener("click", () => show(still.isConnected));
  film.decode().then(() => {
    [still.width, still.height] = [film.naturalWidth, film.naturalHeight];
    still.getContext("2d").drawImage(film, 0, 0);
    film.after(button);
    show(!matchMedia("(prefers-reduced-motion: reduce)").matches);
  });
}

// A figure opens alone at a touch, since its letters are small on a phone.
for (const figure of document.querySelectorAll('.md-typeset p > img[src$=".svg"]')) {
  const link = document.createElement("a");
  link.href = figure.src;
  figure.replaceWith(link);
  link.append(figure);
}
