# shellcheck shell=bash
# Completes the command line of hutch(1) in bash. `hutch completion bash` prints this, and in front of it what it knows
# of commands and options: _hutch_commands, _hutch_rootfs_commands, _hutch_options, _hutch_values, _hutch_words.

# Adds what begins with the second word to COMPREPLY: words, and for FILE, DIR and IMAGE what there is of these.
_hutch_offer()
{
    local kind
    for kind in $1; do
        case $kind in
        FILE) compopt -o filenames 2>/dev/null; mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "$2") ;;
        DIR) compopt -o filenames 2>/dev/null; mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -d -- "$2") ;;
        IMAGE) mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -W "$("${COMP_WORDS[0]}" rootfs list 2>/dev/null |
            awk 'NR > 1 { print $1 }')" -- "$2") ;;
        *) mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -W "$kind" -- "$2") ;;
        esac
    done
}

_hutch()
{
    local words=() glued='' word command current previous i
    COMPREPLY=()
    # Bash splits words at '=' and ':' too; here "--data=x" is one.
    for word in "${COMP_WORDS[@]:0:COMP_CWORD+1}"; do
        if [[ ${#words[@]} -gt 1 && ( $glued || $word == [=:]* ) ]]; then words[-1]+=$word; else words+=("$word"); fi
        if [[ $word == *[=:] ]]; then glued=1; else glued=; fi
    done
    current=${words[-1]} command=${words[1]} i=2
    if [[ ${#words[@]} -eq 2 ]]; then _hutch_offer "$_hutch_commands --help --version" "$current"; return; fi
    if [[ $command == rootfs ]]; then
        if [[ ${#words[@]} -eq 3 ]]; then _hutch_offer "$_hutch_rootfs_commands --help" "$current"; return; fi
        command="rootfs ${words[2]}" i=3
    fi
    # Up to the current word; it is a value when the option before it takes one.
    previous=
    for word in "${words[@]:i:${#words[@]}-i-1}"; do
        if [[ $previous ]]; then previous=
        elif [[ $word == -- ]]; then _hutch_offer "$(_hutch_words "$command")" "$current"; return
        elif [[ $word == -?* ]]; then
            if [[ $word != *=* ]] && _hutch_values "$command $word" >/dev/null; then previous=$word; fi
        elif [[ $command == run && $word != *.ipynb ]]; then
            _hutch_offer FILE "$current" # what follows a program is its own
            return
        fi
    done
    if [[ $previous == -v && $current == -* ]]; then previous=; fi # it was --verbose
    if [[ $previous ]]; then _hutch_offer "$(_hutch_values "$command $previous")" "$current"
    elif [[ $current == --*=* ]]; then _hutch_offer "$(_hutch_values "$command ${current%%=*}")" "${current#*=}"
    elif [[ $current == -* ]]; then _hutch_offer "$(_hutch_options "$command")" "$current"
    else _hutch_offer "$(_hutch_words "$command")" "$current"
    fi
}
complete -F _hutch hutch
