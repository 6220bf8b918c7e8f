# Completes the command line of hutch(1) in zsh. `hutch completion zsh` prints this, and in front of it what it knows of
# commands and options: _hutch_commands, _hutch_rootfs_commands, _hutch_arguments.

_hutch_images()
{
    local -a images
    images=(${(f)"$(hutch rootfs list 2>/dev/null | awk 'NR > 1 { print $1 }')"})
    compadd -a images
}

_hutch()
{
    local command=$words[2] context state line
    typeset -A opt_args
    if (( CURRENT == 2 )); then
        _describe command _hutch_commands
        _arguments '--help[what commands there are]' '--version[which hutch this is]'
        return
    fi
    shift words
    (( CURRENT-- ))
    if [[ $command == rootfs ]]; then
        if (( CURRENT == 2 )); then
            _describe command _hutch_rootfs_commands
            return
        fi
        command="rootfs $words[2]"
        shift words
        (( CURRENT-- ))
    fi
    _hutch_arguments "$command"
}

if [[ $funcstack[1] == _hutch ]]; then _hutch "$@"; else compdef _hutch hutch; fi
