"use strict";
(() => {
  document.documentElement.classList.add("js");
  // "1,234", "−5", "12.5 %", "< 0.1 %" and "2 h 14 min" have an order; "new" and "–" are last.
  const units = { d: 86400e3, h: 3600e3, min: 60e3, s: 1e3, ms: 1 };
  const numberOf = (text) => {
    const parts = [...text.matchAll(/(\d+) (d|h|min|s|ms)\b/g)];
    if (parts.length) return parts.reduce((sum, [, count, unit]) => sum + Number(count) * units[unit], 0);
    const digits = text.replace(/^− ?|^-/, "-").match(/^[<>+ ]*(-?[\d,.]+)/);
    return digits ? Number(digits[1].replaceAll(",", "")) : NaN;
  };
  const element = (name, text, properties) => Object.assign(document.createElement(name), { textContent: text }, properties);

  // Copying: a button behind every command.
  const copyButton = (command) => {
    const button = element("button", "Copy", { type: "button", className: "copy" });
    button.setAttribute("aria-label", `Copy ${command.textContent}`);
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(command.textContent);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(command);
        button.textContent = "Selected";
      }
    });
    return button;
  };
  for (const command of document.querySelectorAll("code.command")) command.after(copyButton(command));

  // What is cut at the edge of its cell has the whole text as its title.
  document.addEventListener("mouseover", ({ target }) => {
    if (target.matches("td code.command, .main td:last-child") && target.scrollWidth > target.clientWidth) {
      target.title = target.textContent.trim();
    }
  });

  // Sorting: a button in every title. Numbers begin with the greatest, texts with A.
  const sortTable = (table, title) => {
    const at = title.cellIndex;
    const numeric = title.classList.contains("n");
    const before = title.getAttribute("aria-sort");
    const descending = before === null ? numeric : before === "ascending";
    for (const other of title.parentElement.cells) other.removeAttribute("aria-sort");
    title.setAttribute("aria-sort", descending ? "descending" : "ascending");
    const body = table.tBodies[0];
    closeAll(body);
    const rows = [...body.rows].map((row) => {
      const text = row.cells[at].textContent;
      return { row, key: numeric ? numberOf(text) : text.toLowerCase() };
    });
    const missing = (key) => Number.isNaN(key);
    rows.sort((a, b) => {
      if (missing(a.key) || missing(b.key)) return missing(a.key) - missing(b.key);
      const order = a.key < b.key ? -1 : a.key > b.key ? 1 : 0;
      return descending ? -order : order;
    });
    body.append(...rows.map(({ row }) => row));
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    for (const title of table.tHead.rows[0].cells) {
      const button = element("button", title.textContent.trim(), { type: "button" });
      button.addEventListener("click", () => sortTable(table, title));
      title.replaceChildren(button);
    }
  }

  const close = (row) => {
    if (!row.classList.contains("open")) return;
    row.nextElementSibling.remove();
    row.classList.remove("open");
    row.querySelector("th button").setAttribute("aria-expanded", "false");
  };
  const closeAll = (body) => body.querySelectorAll("tr.open").forEach(close);

  // The groups of a broker.
  for (const part of document.querySelectorAll("[data-where]")) {
    // A group's panel: all its numbers, its filter, and its commands.
    const where = part.dataset.where;
    const main = part.querySelector("table.main");
    const titles = [...main.tHead.rows[0].cells].map((title) => title.textContent);
    const commandsOf = (row) => {
      const [group, topic] = [row.cells[0].textContent, row.cells[1].textContent];
      const explain = row.dataset.command;
      if (explain) return [["One of its messages", explain]];
      const base = (job) => `./spark-submit.sh ${job} ${where} --group ${group} --topic ${topic}`;
      const found = [["Its pulls, and what they cost the broker", base("pulls")], ["Its messages", `${base("export deliveries")} --output -`]];
      if (row.dataset.at) {
        const [queue, offset] = row.dataset.at.split(",");
        found.unshift(["The last message that it pulled", `${base("explain")} --queue ${queue} --offset ${offset}`]);
      }
      return found;
    };
    const panelOf = (row) => {
      const panel = element("div", "", { className: "panel" });
      const cells = [...row.cells];
      const numbers = document.createElement("dl");
      cells.slice(1, -1).forEach((cell, at) => {
        const pair = document.createElement("div");
        pair.append(element("dt", titles[at + 1]), element("dd", cell.textContent));
        numbers.append(pair);
      });
      panel.append(numbers, element("p", "Filter"), element("pre", cells.at(-1).textContent.trim() || "none: the group left"));
      for (const [title, command] of commandsOf(row)) {
        const line = element("p", title);
        const code = element("pre", command);
        line.append(copyButton(code));
        panel.append(line, code);
      }
      return panel;
    };
    const open = (row) => {
      const detail = element("tr", "", { className: "detail" });
      const cell = detail.insertCell();
      cell.colSpan = titles.length;
      cell.append(panelOf(row));
      row.after(detail);
      row.classList.add("open");
      row.querySelector("th button").setAttribute("aria-expanded", "true");
    };
    for (const row of main.tBodies[0].rows) {
      const button = element("button", row.cells[0].textContent, { type: "button" });
      button.setAttribute("aria-expanded", "false");
      button.addEventListener("click", () => (row.classList.contains("open") ? close(row) : open(row)));
      row.cells[0].replaceChildren(button);
    }

    // Searching: every word must be in the group, the topic or the filter.
    const input = part.querySelector("input");
    const found = part.querySelector("output");
    const texts = new Map([...main.tBodies[0].rows].map((row) => {
      const cells = row.cells;
      return [row, `${cells[0].textContent} ${cells[1].textContent} ${cells[cells.length - 1].textContent}`.toLowerCase()];
    }));
    const search = () => {
      closeAll(main.tBodies[0]);
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let count = 0;
      for (const [row, text] of texts) {
        row.hidden = !words.every((word) => text.includes(word));
        if (!row.hidden) count += 1;
      }
      found.textContent = `${count.toLocaleString("en")} of ${texts.size.toLocaleString("en")} rows`;
    };
    input.addEventListener("input", search);
    search();
  }

  // Printing opens all folded parts.
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((part) => (part.open = true)));
})();
