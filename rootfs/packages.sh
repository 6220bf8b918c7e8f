#!/bin/sh
# packages.sh SECTION [SUITE] - prints the packages of a flavour (with those of the sections it extends), or of the
# section "absent", as the Debian release has them (default: the usual one); "flavours" prints the flavours, "releases"
# the releases, the usual one first, and "released SUITE" when it came out. The one reader of packages.txt.
set -eu

list=$(dirname "$0")/packages.txt

case ${1-} in
flavours)
    exec sed -n '/^\[absent\]/q; s/^\[\(.*\)\].*/\1/p' "$list"
    ;;
absent)
    awk '/^\[/ { on = ($1 == "[absent]"); next } on { sub(/#.*/, ""); if (NF) print $1 }' "$list"
    ;;
releases)
    awk '/^\[/ { on = ($1 == "[releases]"); next } on { sub(/#.*/, ""); if (NF) print $1 }' "$list"
    ;;
released)
    awk -v suite="${2-}" '/^\[/ { on = ($1 == "[releases]"); next } on && $1 == suite { print $2 }' "$list"
    ;;
*)
    # From the section that is asked for to those that it extends, and the packages in the file's order.
    awk -v want="[${1-}]" -v suite="(${2:-$("$0" releases | head -n 1)})" '
        /^\[/  { base[$1] = $2 == "on" ? "[" $3 "]" : section; section = $1; next }
               { sub(/#.*/, ""); if (NF && (NF == 1 || $2 == suite)) { name[++n] = $1; of[n] = section } }
        END    { if (want == "[absent]" || want == "[releases]" || !(want in base)) exit 1
                 for (s = want; s != "" && !(s in taken); s = base[s]) taken[s] = 1
                 for (i = 1; i <= n; i++) if (of[i] in taken) print name[i] }' "$list" || {
        echo "packages.sh: no flavour '${1-}' in packages.txt (there are: $("$0" flavours | tr '\n' ' '))" >&2
        exit 1
    }
    ;;
esac
