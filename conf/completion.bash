# shellcheck shell=bash
# Completion for spark-submit.sh, of bash and zsh: source conf/completion.bash
# Made by conf/make_completion.py from the jobs' parsers.
if [ -n "${ZSH_VERSION:-}" ]; then
  autoload -U +X compinit bashcompinit
  compinit
  bashcompinit
fi

_mqsieve() {
  local job=${COMP_WORDS[1]:-} before=${COMP_WORDS[COMP_CWORD - 1]} words='' found
  if [ "$COMP_CWORD" -eq 1 ]; then
    words='advise audit deliver dispatch explain export inconsistency ingest lag lint maintain nightly pulls register replay report subscriptions verify what-if test python bench'
  else
    # What follows an option with a value is one of its choices, or a file.
    case $job:$before in
      advise:--warehouse | advise:--broker) ;;
      audit:--fail-on) words='error warn' ;;
      audit:--warehouse | audit:--baseline | audit:--junit) ;;
      deliver:--warehouse | deliver:--broker-config | deliver:--filter-hooks) ;;
      dispatch:--warehouse | dispatch:--broker-config) ;;
      explain:--warehouse | explain:--broker | explain:--group | explain:--message | explain:--topic | explain:--queue | explain:--offset) ;;
      export:--format) words='jsonl csv parquet' ;;
      export:--warehouse | export:--broker | export:--group | export:--topic | export:--columns | export:--output) ;;
      inconsistency:--warehouse | inconsistency:--broker | inconsistency:--broker-config | inconsistency:--subscriptions | inconsistency:--output) ;;
      ingest:--bodies) words='keep damaged none' ;;
      ingest:--warehouse | ingest:--broker-config | ingest:--store) ;;
      lag:--warehouse | lag:--broker | lag:--group | lag:--topic | lag:--offsets) ;;
      lint:--fail-on) words='error warn' ;;
      lint:--warehouse | lint:--broker | lint:--subscriptions) ;;
      maintain:--warehouse | maintain:--broker | maintain:--keep-days | maintain:--keep-bodies) ;;
      nightly:--bodies) words='keep damaged none' ;;
      nightly:--warehouse | nightly:--broker-config | nightly:--store | nightly:--subscriptions | nightly:--redo-from | nightly:--filter-hooks | nightly:--brokers) ;;
      pulls:--warehouse | pulls:--broker | pulls:--broker-config | pulls:--group | pulls:--topic | pulls:--offset | pulls:--batch) ;;
      register:--warehouse | register:--broker-config | register:--subscriptions | register:--redo-from) ;;
      replay:--warehouse | replay:--broker | replay:--subscriptions | replay:--from | replay:--to | replay:--into) ;;
      report:--warehouse | report:--broker | report:--output | report:--since | report:--compare) ;;
      verify:--warehouse | verify:--broker | verify:--broker-config | verify:--store) ;;
      what-if:--warehouse | what-if:--broker | what-if:--group | what-if:--topic | what-if:--sql | what-if:--tags | what-if:--changes | what-if:--from | what-if:--to | what-if:--max-lost | what-if:--max-gained | what-if:--expect) ;;
      *)
        case $job in
          advise) words='-h --help --warehouse --broker --json' ;;
          audit) words='-h --help --warehouse --fail-on --baseline --all --junit --show-values --json' ;;
          deliver) words='-h --help --warehouse --broker-config --filter-hooks' ;;
          dispatch) words='-h --help --warehouse --broker-config' ;;
          explain) words='-h --help --warehouse --broker --group --message --topic --queue --offset --full --json' ;;
          export) words='-h --help commitlog consumequeue delivery_stats consumer_offsets current_offsets queue_progress subscriptions subscription_events quarantine run_ledger quality_results deliveries --warehouse --broker --group --topic --columns --format --output' ;;
          inconsistency) words='-h --help --warehouse --broker --broker-config --subscriptions --output' ;;
          ingest) words='-h --help --warehouse --broker-config --store --bodies --new-epoch' ;;
          lag) words='-h --help --warehouse --broker --group --topic --offsets --json --prometheus' ;;
          lint) words='-h --help --warehouse --broker --subscriptions --fail-on --json' ;;
          maintain) words='-h --help --warehouse --broker --keep-days --keep-bodies --rebuild' ;;
          nightly) words='-h --help --warehouse --broker-config --store --bodies --new-epoch --subscriptions --redo-from --filter-hooks --brokers --strict' ;;
          pulls) words='-h --help --warehouse --broker --broker-config --group --topic --offset --batch' ;;
          register) words='-h --help --warehouse --broker-config --subscriptions --redo-from' ;;
          replay) words='-h --help --warehouse --broker --subscriptions --from --to --into' ;;
          report) words='-h --help --warehouse --broker --output --since --compare' ;;
          subscriptions) words='' ;;
          verify) words='-h --help --warehouse --broker --broker-config --store' ;;
          what-if) words='-h --help --warehouse --broker --group --topic --sql --tags --changes --from --to --max-lost --max-gained --expect --json' ;;
        esac
        ;;
    esac
  fi
  COMPREPLY=()
  while IFS='' read -r found; do
    COMPREPLY+=("$found")
  done < <(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}")
}

complete -o bashdefault -o default -F _mqsieve spark-submit.sh
