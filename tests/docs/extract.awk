# Prints the blocks fenced as ```LANGUAGE whose first line matches FIRST, page after page; with N, the Nth of them alone.
BEGIN { fence = "^```" language "$" }
FNR == 1 { inside = 0; wanted = 0 }
!inside && $0 ~ fence { inside = 1; first_line = 1; next }
inside && /^```$/ { inside = 0; wanted = 0; next }
inside && first_line { first_line = 0; if ($0 ~ first) { seen++; wanted = (n == "" || n == seen) } }
inside && wanted { print }
