# Reads what `gcov --stdout` prints for every object of a build, and merges it: a line of a header is in many objects, and covered if it is in one.
#   awk -v explained=FILE -v folders="tp pp runtime/rules" -v list=1 -f coverage.awk
# explained has lines of "file | function | text | reason": an uncovered line of `file`, in `function`, that has `text` in it ("*": any) is explained.
# Exit status 1: a line of `folders` is neither covered nor explained, or an explanation is of no line that there is.

function trim(s) { gsub(/^[ \t]+|[ \t]+$/, "", s); return s }

function strict(file,   n, parts, i) {
    n = split(folders, parts, " ")
    for (i = 1; i <= n; i++) if (index(file, parts[i] "/") == 1) return 1
    return 0
}

BEGIN {
    while (explained != "" && (getline entry < explained) > 0) {
        if (entry ~ /^[ \t]*(#|$)/) continue
        if (split(entry, part, / \| /) != 4) {
            print explained ": not \"file | function | text | reason\": " entry
            failed = 1
            continue
        }
        count++
        e_file[count] = trim(part[1]); e_function[count] = trim(part[2]); e_text[count] = trim(part[3])
    }
}

# "   count:  line:text", with the text as it stands in the source.
{
    first = index($0, ":")
    rest = substr($0, first + 1)
    second = index(rest, ":")
    if (first == 0 || second == 0) next
    hits = trim(substr($0, 1, first - 1))
    number = substr(rest, 1, second - 1) + 0
    text = substr(rest, second + 1)
}
number == 0 {
    if (text ~ /^Source:/) { file = substr(text, 8); sub(/^\.\.\//, "", file); keep = file !~ /^\// && file !~ /^tests\//; name = "" }
    next
}
!keep { next }
# A function's name stands at the left margin, with its parameters.
text ~ /^[A-Za-z_].*\(/ && text !~ /;[ \t]*$/ { name = text; sub(/\(.*/, "", name); sub(/.*[ *]/, "", name) }
{ if (!((file, number) in source)) { source[file, number] = text; inside[file, number] = name; if (number > last[file]) last[file] = number } }
hits == "-" { next }
{
    sub(/\*$/, "", hits)
    ran = hits !~ /^[#=]/ && hits + 0 > 0
    if (!((file, number) in state)) state[file, number] = 0
    if (ran) state[file, number] = 1
}

function explanation(file, number,   i) {
    for (i = 1; i <= count; i++) {
        if (e_file[i] == file && (e_function[i] == "*" || e_function[i] == inside[file, number]) &&
            (e_text[i] == "*" || index(source[file, number], e_text[i]) > 0)) { used[i] = 1; return i }
    }
    return 0
}

END {
    for (file in last) files[++n] = file
    for (i = 2; i <= n; i++) { # few: insertion
        one = files[i]
        for (k = i - 1; k > 0 && files[k] > one; k--) files[k + 1] = files[k]
        files[k + 1] = one
    }
    printf "%-36s %7s %7s %9s %9s\n", "file", "lines", "covered", "explained", "neither"
    for (i = 1; i <= n; i++) report(files[i])
    for (i = 1; i <= count; i++) if (!used[i]) stale(i)
    for (f = 1; f <= split(folders, part, " "); f++) {
        folder = part[f]
        printf "%-36s %7d %6.2f%% %9d %9d\n", folder "/", t_lines[folder], 100 * t_covered[folder] / (t_lines[folder] + !t_lines[folder]), t_explained[folder], t_open[folder]
        open += t_open[folder]
        if (t_lines[folder] == 0) failed = 1
    }
    printf "%s", listing
    if (open > 0) printf "%d lines of %s are neither covered nor explained\n", open, folders
    exit open > 0 || failed
}

function report(file,   number, lines, covered, told, missing, folder, f, m, parts) {
    folder = ""
    m = split(folders, parts, " ")
    for (f = 1; f <= m; f++) if (index(file, parts[f] "/") == 1) folder = parts[f]
    for (number = 1; number <= last[file]; number++) {
        if (!((file, number) in state)) continue
        lines++
        if (state[file, number]) { covered++; continue }
        if (folder != "" && explanation(file, number)) { told++; continue }
        missing++
        if (folder != "") listing = listing sprintf("%s:%d: %s: %s\n", file, number, inside[file, number], trim(source[file, number]))
    }
    if (lines == 0) return
    printf "%-36s %7d %6.1f%% %9d %9d\n", file, lines, 100 * covered / lines, told, missing
    if (folder == "") return
    t_lines[folder] += lines; t_covered[folder] += covered; t_explained[folder] += told; t_open[folder] += missing
}

# An explanation that no uncovered line needs: of a line that is covered here after all (said), or of none at all (a failure).
function stale(i,   key, part, found) {
    for (key in source) {
        split(key, part, SUBSEP)
        if (part[1] == e_file[i] && (e_function[i] == "*" || inside[key] == e_function[i]) && (e_text[i] == "*" || index(source[key], e_text[i]) > 0)) found = 1
    }
    if (found) printf "explained, but covered: %s | %s | %s\n", e_file[i], e_function[i], e_text[i]
    else { printf "explained, but no such line: %s | %s | %s\n", e_file[i], e_function[i], e_text[i]; failed = 1 }
}
