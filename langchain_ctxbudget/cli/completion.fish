# Completes commands and their options in fish; what is no option is completed as a file.
complete -c ctxbudget -n __fish_use_subcommand -f -a "COMMANDS"
OPTIONS
