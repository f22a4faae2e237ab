# Completes commands and their options in bash and zsh; what is no option is completed as a file.
if [ -n "$ZSH_VERSION" ]; then
  type compdef >/dev/null 2>&1 || { autoload -U compinit && compinit; }
  autoload -U +X bashcompinit && bashcompinit
fi
_ctxbudget() {
  local words="COMMANDS"
  [ "$COMP_CWORD" -gt 1 ] && case "${COMP_WORDS[1]}" in
OPTIONS
  esac
  COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _ctxbudget ctxbudget
