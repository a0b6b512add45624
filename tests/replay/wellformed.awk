# A page's elements nest and close, attributes are quoted and stand once, ids are unique, text has no bare < or &. Prints "well-formed N elements", or what is
# wrong and exits 1.
function wrong(why) { print "line " NR ": " why; bad = 1; exit 1 }
function check_text(text) {
    gsub(/&(amp|lt|gt|quot|#39);/, "", text)
    if (text ~ /&/) wrong("a bare & in: " text)
}
function check_attributes(text,   name, seen, all) {
    all = text
    while (match(text, /^[ \t]+[a-zA-Z][-a-zA-Z:0-9]*="[^"<]*"/)) {
        name = substr(text, 1, RLENGTH)
        check_text(name)
        if (match(name, / id="[^"]*"/)) {
            if (substr(name, RSTART, RLENGTH) in ids) wrong("twice:" name)
            ids[substr(name, RSTART, RLENGTH)] = 1
            match(name, /.*/)
        }
        match(text, /^[ \t]+[a-zA-Z][-a-zA-Z:0-9]*="[^"<]*"/)
        text = substr(text, RLENGTH + 1)
        sub(/=.*/, "", name)
        if (name in seen) wrong("twice in one element:" name)
        seen[name] = 1
    }
    if (text !~ /^[ \t]*$/) wrong("not an attribute: " text)
}
function element(text,   name) {
    if (text ~ /^\//) {
        if (stack[depth] != substr(text, 2)) wrong("</" substr(text, 2) "> closes <" stack[depth] ">")
        depth--
        return
    }
    match(text, /^[a-zA-Z][a-zA-Z0-9]*/)
    if (RLENGTH < 1) wrong("no element: <" text ">")
    name = substr(text, 1, RLENGTH)
    elements++
    if (text ~ /\/$/) { check_attributes(substr(text, RLENGTH + 1, length(text) - RLENGTH - 1)); return }
    check_attributes(substr(text, RLENGTH + 1))
    stack[++depth] = name
}
NR == 1 { if ($0 != "<!DOCTYPE html>") wrong("no doctype"); next }
stack[depth] == "style" && !/<\/style>/ { if (/@import|url\(/) wrong("loads something: " $0); next }
{
    rest = $0
    while ((at = index(rest, "<")) > 0) {
        check_text(substr(rest, 1, at - 1))
        rest = substr(rest, at + 1)
        if ((to = index(rest, ">")) == 0) wrong("an element over two lines")
        element(substr(rest, 1, to - 1))
        rest = substr(rest, to + 1)
    }
    if (rest ~ />/) wrong("a bare > in: " rest)
    check_text(rest)
}
END {
    if (bad) exit 1
    if (depth != 0) { print "<" stack[depth] "> is not closed"; exit 1 }
    print "well-formed", elements, "elements"
}
