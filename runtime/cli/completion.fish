# Completes the command line of hutch(1) in fish. `hutch completion fish` prints this, and behind it what it knows of
# commands and options.

function __hutch_images
    hutch rootfs list 2>/dev/null | awk 'NR > 1 { print $1 }'
end

# Whether the words before the cursor begin with these; without any, whether there are none.
function __hutch_is
    set -l words (commandline -opc)
    if test (count $argv) -eq 0
        test (count $words) -eq 1
    else
        set -l last (math (count $argv) + 1)
        test (count $words) -ge $last; and test "$words[2..$last]" = "$argv"
    end
end

function __hutch_is_rootfs
    set -l words (commandline -opc)
    test (count $words) -eq 2; and test "$words[2]" = rootfs
end
