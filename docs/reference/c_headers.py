"""Makes the pages of the C reference from the comments and declarations of the headers.

The headers follow strict rules, so a parser of C is not needed. A `/** .. */` documents the declaration after it,
`/* ---- Title ---- */` begins a section, and a name that ends with `_` is private. A declaration that breaks the rules is an
error, so nothing is left out silently.
"""

import re
from pathlib import Path
from typing import NamedTuple, Optional

INCLUDE = Path(__file__).resolve().parents[2] / "bindings/c/include"

# Per header: title of its page, and of the section before the first one that the header names; None sorts by kind instead.
HEADERS = {
    "c_api": ("The C ABI", None),
    "anyfn": ("Helpers for kernels and programs", "Exporting functions"),
    "signature": ("Signatures", "Declaring signatures"),
    "object": ("Object types", "Definitions"),
    "program": ("Helpers for programs that embed the runtime", "Arguments"),
    "board": ("The runtime on a board without an operating system", None),
    "classic_c_api": ("The C API of TVM 0.8", None),
}

# What the headers need themselves: attributes of compilers, guards, and types of the implementation.
INTERNAL = re.compile(
    r"ANYFN_(DLL|DLL_EXPORT|ENUM_BASE|ENUM_END|PRINTF_LIKE|MUST_USE|UNUSED|EXTERN_C|THREAD_LOCAL|\w+_H_)"
    r"|Anyfn(FieldPlace|ObjectFront|FieldWay)|\w+_"
)
KINDS = {
    "enum": "Enumerations",
    "struct": "Structs and unions",
    "type": "Handles and types of functions",
    "macro": "Constants",
    "function": "Functions",
}
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)


class Item(NamedTuple):
    """A declaration with its documentation."""

    name: str
    kind: str
    doc: str
    code: str
    members: list
    section: Optional[str]


class HeaderError(Exception):
    """A header breaks the rules by which it is read."""


def comment_text(comment):
    """Returns the text of a comment without its frame."""
    return re.sub(r"^ *\* ?", "", re.sub(r"^/\*+ ?|\s*\*/$", "", comment), flags=re.MULTILINE).strip()


def declaration_end(text, start):
    """Returns the offset after the declaration that begins at `start`, and whether it ends with the body of a function."""
    depth, at, is_body = 0, start, False
    while at < len(text):
        comment = COMMENT.match(text, at)
        literal = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'').match(text, at)
        if comment or literal:
            at = (comment or literal).end()
            continue
        char = text[at]
        if char == "{" and depth == 0:
            is_body = text[start:at].rstrip().endswith(")")
        depth += (char in "({") - (char in ")}")
        at += 1
        if depth == 0 and (char == ";" or char == "}" and is_body):
            return at, is_body
    raise HeaderError(f"the declaration does not end: {text[start : start + 80]}")


def members_of(code):
    """Returns the documented members of a struct or enum: name, value (of an enum) and documentation."""
    found = []
    for match in re.finditer(r"(/\*\*(?:(?!\*/).)*\*/)\s*((?:[^;,{}/]|/(?!\*))*\{?)", code[code.index("{") :], re.DOTALL):
        declared = match[2].strip()
        if declared.endswith("{"):
            continue  # an inner union, whose members are documented themselves
        pointer = re.search(r"\(\*(\w+)\)", declared)
        value = re.fullmatch(r"(\w+)(?: = (.+))?", declared)
        name = pointer[1] if pointer else value[1] if value else re.search(r"(\w+)(?:\[\w+\])?$", declared)[1]
        found.append((name, value and value[2], comment_text(match[1])))
    return found


def name_and_kind(code):
    """Returns the name and the kind of a declaration."""
    plain = re.sub(r"ANYFN_PRINTF_LIKE\([^)]*\)|ANYFN_ENUM_END", "", COMMENT.sub("", code))
    patterns = (
        ("enum", r"typedef enum\b.*\}\s*(\w+);$"),
        ("struct", r"typedef (?:struct|union)\b.*\}\s*(\w+);$"),
        ("struct", r"struct (\w+)\s*\{.*\};$"),
        ("type", r"typedef [^(]*\(\*(\w+)\)\(.*\);$"),
        ("type", r"typedef [^({]*?(\w+);$"),
        ("function", r"[^({=]*?(\w+)\(.*\)(?:;|\s*\{.*\})$"),
    )
    for kind, pattern in patterns:
        match = re.match(pattern, plain.strip(), re.DOTALL)
        if match:
            return match[1], kind
    raise HeaderError(f"no declaration that the reference knows: {code[:80]}")


def shown(code, is_body):
    """Returns a declaration as the reference shows it: without comments, attributes and the body of a function."""
    if is_body:
        code = code[: code.index(")" + re.search(r"\)(\s*\{)", code)[1]) + 1] + ";"
    code = COMMENT.sub(
        "", re.sub(r"ANYFN_PRINTF_LIKE\([^)]*\) |ANYFN_(DLL|MUST_USE) |static inline | ANYFN_ENUM_(?:BASE|END)", "", code)
    )
    lines = [line.rstrip() for line in code.split("\n") if line.strip()]
    if is_body and len(lines) > 1:  # The arguments are aligned with the parenthesis, which has moved.
        lines = [lines[0]] + [" " * (lines[0].index("(") + 1) + line.strip() for line in lines[1:]]
    return "\n".join(lines)


def read(text, first_section=None):
    """Returns the introduction of a header, and its items in order."""
    items, doc, section, introduction, at = [], None, first_section, None, 0
    documented = set()
    while at < len(text):
        line = re.compile(r"[^\n]*\n?").match(text, at)
        comment = COMMENT.match(text, at)
        macro = re.compile(r"#define (\w+)((?:\\\n|[^\n])*)\n").match(text, at)
        if comment:
            title = re.fullmatch(r"/\* -+ (.*?) -+ \*/", comment[0])
            if title:
                section = title[1]
            elif comment[0].startswith("/**"):
                doc = comment_text(comment[0])
            elif introduction is None and "Generated" not in comment[0]:
                introduction = comment_text(comment[0])
            at = comment.end()
        elif macro:
            name = macro[1]
            parameters = re.match(r"\([^)]*\)", macro[2])
            if doc is not None:
                value = "" if parameters else macro[2]
                items.append(Item(name, "macro", doc, f"#define {name}{parameters[0] if parameters else value}", [], section))
            elif items and items[-1].kind == "macro" and text[:at].endswith(f"{items[-1].code}\n".split("\n")[-2] + "\n"):
                last = items.pop()  # Macros without an empty line between them share their documentation.
                items.append(last._replace(code=f"{last.code}\n#define {name}{macro[2]}"))
            elif not INTERNAL.fullmatch(name):
                raise HeaderError(f"the macro {name} has no documentation")
            doc, at = None, macro.end()
        elif not line[0].strip() or line[0][0] in "#}" or line[0].startswith('extern "C"'):
            at = line.end()
        else:
            end, is_body = declaration_end(text, at)
            code = text[at:end]
            name, kind = name_and_kind(code)
            forward = re.fullmatch(r"typedef struct (\w+) \1;", code)
            if INTERNAL.fullmatch(name):
                pass
            elif doc is not None:
                members = members_of(code) if kind in ("enum", "struct") and "{" in code else []
                items.append(Item(name, kind, doc, shown(code, is_body), members, section))
                documented.add(name)
            elif not forward and name not in documented:
                raise HeaderError(f"{name} has no documentation")
            doc, at = None, end
    return introduction, items


def headers():
    """Returns the introduction and the items of each header, by its name."""
    return {name: read((INCLUDE / f"anyfn/{name}.h").read_text(encoding="utf-8"), HEADERS[name][1] or "") for name in HEADERS}


def markdown(text, names):
    """Returns the text of a comment as Markdown. `names` maps the names that become links to their addresses."""

    def linked(match):
        guide, header, word = match[1], match[2], match[3] or match[4]
        if guide:
            return f"[{guide}](../../{guide}.md)"
        if header:
            page = re.fullmatch(r"anyfn/(\w+)\.h", header)
            return f"[`{header}`]({page[1]}.md)" if page and page[1] in HEADERS else f"`{header}`"
        if word and word.rstrip("()") in names:
            return f"[`{word}`]({names[word.rstrip('()')]})"
        return {"<": "&lt;", "|": "\\|"}.get(match[0], match[0])

    pattern = r"`?docs/([\w/-]+)\.md`?|<([\w/]+\.h)>|`([^`\n]+)`|\b([A-Za-z]\w+(?:\(\))?)|[<|]"
    parts = []
    for part in re.split(r"\n\s*\n", text):
        is_code = all(line.startswith("    ") for line in part.split("\n"))
        if is_code and parts and parts[-1].startswith("```"):
            parts[-1] = parts[-1][:-4] + "\n\n" + re.sub(r"^    ", "", part, flags=re.MULTILINE) + "\n```"
        elif is_code:
            parts.append("```c\n" + re.sub(r"^    ", "", part, flags=re.MULTILINE) + "\n```")
        else:
            parts.append(re.sub(pattern, linked, re.sub(r"(?<=:)\n(?=- )", "\n\n", part)))
    return "\n\n".join(parts)


def page(header, introduction, items, names):
    """Returns the source of the page of a header."""
    title, first_section = HEADERS[header]
    lines = [f"# {title}", "", f"```c\n#include <anyfn/{header}.h>\n```", "", markdown(introduction, names), ""]
    sections = list(dict.fromkeys(item.section for item in items)) if first_section else list(KINDS)
    for section in sections:
        lines += [f"## {section if first_section else KINDS[section]}", ""]
        for item in items:
            if section != (item.section if first_section else item.kind):
                continue
            lines += [f"### `{item.name}` {{ #{item.name} data-toc-label='{item.name}' }}", ""]
            lines += [f"```c\n{item.code}\n```", "", markdown(item.doc, names), ""]
            if item.members:
                columns = ["member", "meaning"]
                if item.kind == "enum":
                    columns = ["constant", "value", "meaning"] if item.members[0][1] else ["constant", "meaning"]
                lines += [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
                for name, value, doc in item.members:
                    cells = [
                        f"`{name}`",
                        *([f"`{value}`"] if "value" in columns else []),
                        " ".join(markdown(doc, names).split()),
                    ]
                    lines.append(f"| {' | '.join(cells)} |")
                lines.append("")
    return "\n".join(lines)


def pages():
    """Yields the name and the source of each page in the folder of the reference."""
    read_headers = headers()
    names = {}
    for header, (_, items) in read_headers.items():
        for item in items:
            # Constants of an enumeration are found where the enumeration is described.
            constants = [member[0] for member in item.members if item.kind == "enum"]
            names.update(dict.fromkeys([item.name, *constants], f"{header}.md#{item.name}"))
    for header, (introduction, items) in read_headers.items():
        yield f"{header}.md", page(header, introduction, items, names)
