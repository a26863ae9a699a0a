"""explain: why a message reached a group or not: the stage, the rule and the values that decided it."""

from __future__ import annotations

from jobs.cli import application, options
from jobs.cli.application import Parser, given_name

EXAMPLES = (
    "--group cg_paid --message ord-47 --warehouse /data/mqsieve",
    "--topic OrderEvents --queue 0 --offset 3 --warehouse /data/mqsieve",
)


def parser() -> Parser:
    parser = Parser("explain", __doc__, EXAMPLES)
    options.add_answer(parser)
    parser.add_argument(
        "--group", type=given_name, metavar="NAME", help="the consumer group; default: every group, one line for each"
    )
    parser.add_argument(
        "--message", metavar="ID", help="the message's msgId, unique key (UNIQ_KEY), or one of its KEYS"
    )
    parser.add_argument("--topic", type=given_name, metavar="NAME", help="its topic, with --queue and --offset")
    parser.add_argument("--queue", type=int, metavar="N", help="its queue id")
    parser.add_argument("--offset", type=int, metavar="N", help="its queue offset")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--full", action="store_true", help="show everything: the whole expression, the bit map, …")
    options.add_json(output)
    return parser


def main(arguments: list[str]) -> None:
    given = parser()
    chosen = given.parse_args(arguments)
    place = (chosen.topic, chosen.queue, chosen.offset)
    if (chosen.message is None) == (None in place) or (chosen.message is not None and place != (None, None, None)):
        given.error("choose a message: give either --message, or --topic, --queue and --offset")
    from jobs.cli.explanation import print_choices, print_every_group, print_explanation
    from jobs.cli.json_lines import print_json
    from schemas.answers.explanation.as_json import explanation_json, message_json
    from schemas.answers.explanation.why import why, why_at

    facts = options.facts_of(chosen)
    message, group = chosen.message, chosen.group
    found = why_at(facts, *place, group) if message is None else why(facts, message, group)
    if chosen.json:
        copies = {
            message.commitlog_offset: [message_json(copy) for copy in found.copies(message)]
            for message in found.messages
        }
        print_json(*(explanation_json(each) | {"copies": copies[each.message.commitlog_offset]} for each in found))
    elif len(found.messages) > 1:
        print_choices(found.messages, chosen.group)
    elif chosen.group is None:
        print_every_group(list(found), found.messages[0], found.copies(found.messages[0]))
    else:
        (explanation,) = found
        print_explanation(explanation, found.copies(explanation.message), chosen.full)


if __name__ == "__main__":
    application.run(main)
