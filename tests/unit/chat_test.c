// SPDX-License-Identifier: Apache-2.0
// Chat templates: what Jinja and transformers make of each construct, what is refused and how, and
// the templates of real checkpoints where the shared data is.
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "base/file.h"
#include "base/memory.h"
#include "chat/chat.h"
#include "support/sandbox.h"
#include "support/test.h"

#define SHARED_CASES  "../shared/data/chat/cases.json"
#define SHARED_SINGLE "../shared/data/chat/jinja.json"
#define FILE_LIMIT    ((size_t)1 << 20)
#define NOON          1752148800 // 2025-07-10 12:00:00 UTC

typedef struct rendering {
    const char *source, *expected;
} rendering;

static const char context[] =
    "{\"n\": 3, \"f\": 2.5, \"s\": \"Hello World\", \"e\": \"\", \"l\": [3, 1, 2], \"none_\": null,"
    "\"d\": {\"b\": 1, \"A\": null}, \"m\": [{\"role\": \"user\", \"content\": \"h\\u00e9\"},"
    "{\"role\": \"assistant\", \"content\": \"x\"}], \"items\": [[1, 2], [3, 4]]}";

static berth_status render_with(berth_str source, const berth_json *variables, berth_text *text) {
    berth_chat *chat;
    const berth_status parsed = berth_chat_parse(source, "test.jinja", &chat);
    if (parsed != BERTH_OK) {
        return parsed;
    }
    const berth_status status = berth_chat_render(chat, variables, NOON, text);
    berth_chat_close(chat);
    return status;
}

static berth_status render(berth_str source, berth_text *text) {
    berth_json *variables;
    const berth_str json = {.data = context, .size = sizeof(context) - 1};
    CHECK_OK(berth_json_parse(json, "context", NULL, &variables));
    berth_text_init(text, BERTH_CHAT_TEXT_BYTES);
    const berth_status status = render_with(source, variables, text);
    berth_json_destroy(variables);
    return status;
}

static void check_renderings(const rendering *rows, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        berth_text text;
        CHECK_OK(render(berth_str_from(rows[i].source), &text));
        CHECK_STR(text.data ? text.data : "", rows[i].expected);
        berth_text_deinit(&text);
    }
}

static void check_refusal(const char *source, berth_status code, const char *message) {
    berth_text text;
    CHECK_STATUS(render(berth_str_from(source), &text), code);
    CHECK_CONTAINS(berth_status_message(), message);
    berth_text_deinit(&text);
}

TEST(tags_take_the_white_space_that_their_signs_say) {
    static const rendering rows[] = {
        {.source = "a\n  {% if n %}\nb\n  {% endif %}\nc\n", .expected = "a\nb\nc"      },
        {.source = "a\n  {%+ if n %}b{% endif %}",           .expected = "a\n  b"       },
        {.source = "a {%- if n -%} b {%- endif -%} c",       .expected = "abc"          },
        {.source = "a\n  {{ n }}\n  {{- n -}}\n b",          .expected = "a\n  33b"     },
        {.source = "a\r\n{# c #}\r\nb\r",                    .expected = "a\nb"         },
        {.source = "{% if n +%}\nb{% endif %}",              .expected = "\nb"          },
        {.source = "{% raw %}{{ n }}{# #}{% endraw %}\n.",   .expected = "{{ n }}{# #}."},
        {.source = "{{ {'a': {}} }}",                        .expected = "{'a': {}}"    },
    };
    check_renderings(rows, BERTH_COUNT(rows));
}

TEST(values_print_as_python_prints_them) {
    static const rendering rows[] = {
        {.source = "{{ [true, none, 1.0, 1e20, 1e-7, 0.1, -0.0] }}",
         .expected = "[True, None, 1.0, 1e+20, 1e-07, 0.1, -0.0]"                                                                },
        {.source = "{{ [\"it's\", 'a\"', '\\n', '\\x07', m[0].content] }}",
         .expected = "[\"it's\", 'a\"', '\\n', '\\x07', 'h\u00e9']"                                                              },
        {.source = "{{ (1,) }}{{ () }}{{ {'a': (1, 2)} }}",                                     .expected = "(1,)(){'a': (1, 2)}"},
        {.source = "{{ d.items() }}{{ range(3) }}",
         .expected = "dict_items([('b', 1), ('A', None)])"
                     "range(0, 3)"                                                                                               },
        {.source = "{{ undefined_ }}{{ [undefined_] }}{{ none_ }}",                             .expected = "[Undefined]None"    },
        {.source = "{{ d | tojson }}{{ d | tojson(indent=1, sort_keys=true) }}",
         .expected = "{\"b\": 1, \"A\": null}{\n \"A\": null,\n \"b\": 1\n}"                                                     },
        {.source = "{{ m[0].content | tojson }}{{ m[0].content | tojson(ensure_ascii=true) }}",
         .expected = "\"h\u00e9\"\"h\\u00e9\""                                                                                   },
    };
    check_renderings(rows, BERTH_COUNT(rows));
}

TEST(operators_are_pythons) {
    static const rendering rows[] = {
        {.source = "{{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ -7.5 % 2 }}",
         .expected = "-4 2 3.5 1024 0.5"                                                                               },
        {.source = "{{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }} {{ 1 == 1.0 == true }}",
         .expected = "True False True"                                                                                 },
        {.source = "{{ 'a' * 3 ~ 1 ~ none }} {{ [1] + [2] }}",                            .expected = "aaa1None [1, 2]"},
        {.source = "{{ 'l' in s }} {{ 1 not in l }} {{ 'b' in d }}",                      .expected = "True False True"},
        {.source = "{{ 0 or 'x' }} {{ '' and 1 }} {{ not l }}",                           .expected = "x  False"       },
        {.source = "{{ -1 | abs }} {{ 1 + l | length }}",                                 .expected = "1 4"            },
        {.source = "{{ s[1:4] }} {{ s[::-1] }} {{ l[-1] }} {{ l[5] is defined }}",
         .expected = "ell dlroW olleH 2 False"                                                                         },
        {.source = "{{ 'a' if n > 5 }}{{ 'b' if n else 'c' }}",                           .expected = "b"              },
        {.source = "{{ '%05.1f|%-4s|%d%%' % (f, 'x', 7) }}",                              .expected = "002.5|x   |7%"  },
    };
    check_renderings(rows, BERTH_COUNT(rows));
    check_refusal("{{ 'a' + 1 }}", BERTH_INVALID_ARGUMENT, "test.jinja:1: '+' does not work on");
    check_refusal("{{ 1 // 0 }}", BERTH_INVALID_ARGUMENT, "division by zero");
    check_refusal("{{ 9223372036854775807 + 1 }}", BERTH_UNSUPPORTED, "64 bits");
}

TEST(loops_have_their_variables_and_scopes) {
    static const rendering rows[] = {
        {.source = "{% for x in l %}{{ loop.index }}/{{ loop.length }}{{ loop.last }} {% endfor %}",
         .expected = "1/3False 2/3False 3/3True "                                                                        },
        {.source = "{% for x in l if x > 1 %}{{ x }}{{ loop.previtem }}{% else %}-{% endfor %}",
         .expected = "323"                                                                                               },
        {.source = "{% for x in [] %}a{% else %}b{% endfor %}",                                      .expected = "b"     },
        {.source = "{% set a = 1 %}{% for x in l %}{{ a }}{% set a = x %}{% endfor %}{{ a }}",
         .expected = "1111"                                                                                              },
        {.source = "{% set ns = namespace(a=0) %}{% for x in l %}{% set ns.a = ns.a + x %}"
                   "{% endfor %}{{ ns.a }}",                                                .expected = "6"     },
        {.source = "{% for a, b in items %}{{ a * b }},{% endfor %}",                                .expected = "2,12," },
        {.source = "{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}"
                   "{% if x == 2 %}{% break %}{% endif %}{% endfor %}",                     .expected = "32"    },
        {.source = "{% for x in [[1], [2, [3]]] recursive %}{{ loop.depth }}"
                   "{% if x is iterable %}{{ loop(x) }}{% endif %}{% endfor %}",            .expected = "121223"},
    };
    check_renderings(rows, BERTH_COUNT(rows));
}

TEST(blocks_and_macros_give_their_text) {
    static const rendering rows[] = {
        {.source = "{% macro t(a, b='!') %}{{ a }}{{ b }}{% endmacro %}{{ t(1) }}{{ t(1, b=2) }}",
         .expected = "1!12"                                                                                                          },
        {.source = "{% macro t() %}[{{ caller(1) }}]{% endmacro %}{% call(x) t() %}{{ x }}"
                   "{% endcall %}",                                                       .expected = "[1]"                 },
        {.source = "{% macro t() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ t(1, a=2) }}",
         .expected = "(1,){'a': 2}"                                                                                                  },
        {.source = "{% set a | upper %}x{{ n }}{% endset %}{{ a }}",                               .expected = "X3"                  },
        {.source = "{{ '\u01C6a a\u03A3'|title }}",                                                .expected = "\u01C4a A\u03C3"     },
        {.source = "a{#-",                                                                         .expected = "a"                   },
        {.source =
             "{% for c in '1\u00B2\u00BDa'|list %}{{ [c.isdecimal(), c.isdigit(), c.isnumeric(), "
             "c.isalnum()]|map('int')|join }} {% endfor %}",                              .expected = "1111 0111 0011 0001 "},
        {.source = "{% filter trim | title %} a b {% endfilter %}",                                .expected = "A B"                 },
        {.source = "{% with a = 1, b = n %}{{ a + b }}{% endwith %}{{ a }}",                       .expected = "4"                   },
        {.source = "{% generation %}g{% endgeneration %}",                                         .expected = "g"                   },
        {.source = "{{ strftime_now('%Y-%m') }}",                                                  .expected = "2025-07"             },
    };
    check_renderings(rows, BERTH_COUNT(rows));
    check_refusal("{% macro t() %}{% endmacro %}{{ t(1) }}", BERTH_INVALID_ARGUMENT,
                  "macro 't' takes no further argument");
}

TEST(filters_and_methods_are_pythons) {
    static const rendering rows[] = {
        {.source = "{{ m | selectattr('role', 'equalto', 'user') | map(attribute='content') "
                   "| list }}",                                                           .expected = "['h\u00e9']"              },
        {.source = "{{ l | sort }}{{ l | sort(reverse=true) | join('-') }}{{ d | dictsort }}",
         .expected = "[1, 2, 3]3-2-1[('A', None), ('b', 1)]"                                                                              },
        {.source = "{{ ' a  b '.split() }}{{ 'a,b,c'.rsplit(',', 1) }}{{ 'a\\nb'.splitlines() }}",
         .expected = "['a', 'b']['a,b', 'c']['a', 'b']"                                                                                   },
        {.source = "{{ 'abc'.startswith(('x', 'a')) }}{{ 'xxaxx'.strip('x') }}"
                   "{{ 'a'.center(4, '*') }}",                                            .expected = "Truea*a**"                },
        {.source = "{{ d.get('zz', 5) }}{{ d.keys() | list }}{{ e | default('x', true) }}",
         .expected = "5['b', 'A']x"                                                                                                       },
        {.source = "{{ 'a\\nb' | indent(2, true) }}{{ 'stra\u00dfe'.upper() }}{{ 2.5 | round }}",
         .expected = "  a\n  bSTRASSE2.0"                                                                                                 },
        {.source = "{% set g = m | map('length') %}{{ g | list }}{{ g | list }}",
         .expected = "[2, 2][]"                                                                                                           },
        {.source = "{{ 1 is odd }}{{ s is string }}{{ d is mapping }}{{ x is defined }}"
                   "{{ n is divisibleby 3 }}{{ 'a' is in ['a'] }}",                       .expected = "TrueTrueTrueFalseTrueTrue"},
    };
    check_renderings(rows, BERTH_COUNT(rows));
}

TEST(filters_of_markup_write_what_jinja_writes) {
    static const rendering rows[] = {
        {.source = "{{ {'a b': 'c/d', 1: none} | urlencode }}",                                  .expected = "a+b=c%2Fd&1=None"              },
        {.source = "{{ [('x', '&'), 'yz'] | urlencode }} {{ 'a b/c' | urlencode }}",
         .expected = "x=%26&y=z a%20b/c"                                                                                                     },
        {.source = "<a{{ {'id': 'x\"', 'n': 3, 'no': none, 'u': u_} | xmlattr }}>",
         .expected = "<a id=\"x&#34;\" n=\"3\">"                                                                                             },
        {.source = "{{ {'a': '<' | safe, 'b': 1} | xmlattr(false) }}",
         .expected = "a=\"<\" b=\"1\""                                                                                                       },
        {.source = "{{ ' a <b>c</b>\n<!-- > -->d &lt; &eacute &#x41;&#128; <e ' | striptags }}",
         .expected = "a c d < \u00e9 A\u20ac <e"                                                                                             },
        {.source = "{{ '&notit &amp-b; &#0;&#11;. &; &zz' | striptags }}",
         .expected = "\u00acit &-b; \ufffd. &; &zz"                                                                                          },
        {.source = "{{ 1 | filesizeformat }} {{ -0.5 | filesizeformat }} {{ '4100000' | "
                   "filesizeformat }}",                                                 .expected = "1 Byte 0 Bytes 4.1 MB"         },
        {.source = "{{ 1024 | filesizeformat(true) }} {{ 1e24 | filesizeformat }} {{ 1e30 | "
                   "filesizeformat }}",                                                 .expected = "1.0 KiB 1000.0 ZB 1000000.0 YB"},
    };
    check_renderings(rows, BERTH_COUNT(rows));
    check_refusal("{{ [1] | urlencode }}", BERTH_INVALID_ARGUMENT, "'int' object is not iterable");
    check_refusal("{{ ['abc'] | urlencode }}", BERTH_INVALID_ARGUMENT, "needs pairs, not 3");
    check_refusal("{{ {'a b': 1} | xmlattr }}", BERTH_INVALID_ARGUMENT, "'a b' cannot be the name");
    check_refusal("{{ l | xmlattr }}", BERTH_INVALID_ARGUMENT, "xmlattr needs a dict");
    check_refusal("{{ '&Zopf;' | striptags }}", BERTH_UNSUPPORTED, "'&Zopf;'");
    check_refusal("{{ none | filesizeformat }}", BERTH_INVALID_ARGUMENT, "a number is needed");
    check_refusal("{{ 'x' | filesizeformat }}", BERTH_INVALID_ARGUMENT, "'x' is no number");
}

TEST(pprint_sorts_keys_and_breaks_lines_as_python_does) {
    static const rendering rows[] = {
        {.source = "{{ {'b': 1, 'a': [{2: 3, 1: ('x',)}]} | pprint }} {{ x_ | pprint }}",
         .expected = "{'a': [{1: ('x',), 2: 3}], 'b': 1} Undefined"},
        {.source = "{{ {'a': 1, none: 2, 3: 4, 2.5: 5, (1,): 6} | pprint }}",
         .expected = "{None: 2, 2.5: 5, 3: 4, 'a': 1, (1,): 6}"    },
        {.source = "{{ ('ab ' * 40) | pprint }}",
         .expected =
             "('ab ab ab ab ab ab ab ab ab ab ab ab ab ab ab ab ab ab ab ab ab ab ab ab ab '\n"
             " 'ab ab ab ab ab ab ab ab ab ab ab ab ab ab ab ')"   },
        {.source = "{{ {'k': 'x' * 70, 'l': ['a' * 40, ('b' * 30 + '\n') * 3]} | pprint }}",
         .expected =
             "{'k': 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx',\n"
             " 'l': ['aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',\n"
             "       'bbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\\n'\n"
             "       'bbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\\n'\n"
             "       'bbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\\n']}"        },
        {.source = "{{ (('c' * 78),) | pprint }}",
         .expected =
             "('cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"
             "',)"                                                 },
    };
    check_renderings(rows, BERTH_COUNT(rows));
    check_refusal("{{ {x_: 1, 'a': 2} | pprint }}", BERTH_INVALID_ARGUMENT, "'x_' is undefined");
    check_refusal("{{ {(1, 'a'): 1, (1, 2): 2} | pprint }}", BERTH_INVALID_ARGUMENT,
                  "cannot be ordered");
    check_refusal("{{ (['a '] * 9999999) | pprint }}", BERTH_OUT_OF_MEMORY, "");
}

TEST(wordwrap_breaks_lines_as_python_does) {
    static const rendering rows[] = {
        {.source = "{{ 'Look, goof-ball -- use the -b option!' | wordwrap(8) }}",
         .expected = "Look,\ngoof-\nball --\nuse the\n-b\noption!"                                              },
        {.source = "{{ '  a b  \n\nc' | wordwrap(3, wrapstring='|') }}",          .expected = "  a|b||c"        },
        {.source = "{{ 'abcdefgh ij' | wordwrap(3) }}",                           .expected = "abc\ndef\ngh\nij"},
        {.source = "{{ 'abcdefgh ij' | wordwrap(3, false) }}",                    .expected = "abcdefgh\nij"    },
        {.source = "{{ 'well-known x' | wordwrap(6, true, '~', false) }}",
         .expected = "well-k~nown x"                                                                            },
        {.source = "{{ 'one--two \u00e9\u00e9 3' | wordwrap(5) }}",
         .expected = "one--\ntwo\n\u00e9\u00e9 3"                                                               },
        {.source = "{{ '' | wordwrap }}{{ 'a b' | wordwrap }}",                   .expected = "a b"             },
    };
    check_renderings(rows, BERTH_COUNT(rows));
    check_refusal("{{ 'a' | wordwrap(0) }}", BERTH_INVALID_ARGUMENT, "a width above 0");
    check_refusal("{{ l | wordwrap }}", BERTH_INVALID_ARGUMENT, "needs a str");
    check_refusal("{{ ('a' * 9999999) | wordwrap(1) }}", BERTH_OUT_OF_MEMORY,
                  "does not come to an end");
}

TEST(what_python_cannot_hash_or_convert_is_refused) {
    static const rendering rows[] = {
        {.source = "{% for x in l %}{{ loop }}{% endfor %}",
         .expected = "<LoopContext 1/3><LoopContext 2/3><LoopContext 3/3>"},
        {.source = "{{ l | truncate }}{{ d | truncate(3) }}{{ u_ | truncate }}",
         .expected = "[3, 1, 2]{'b': 1, 'A': None}"                       },
        {.source = "{{ none | int }}{{ l | int(7) }}{{ u_ is filter }}{{ d[[]] is defined }}",
         .expected = "07FalseFalse"                                       },
    };
    check_renderings(rows, BERTH_COUNT(rows));
    check_refusal("{{ l in d }}", BERTH_INVALID_ARGUMENT, "unhashable type: 'list'");
    check_refusal("{{ (1, {}) in d }}", BERTH_INVALID_ARGUMENT, "unhashable type: 'dict'");
    check_refusal("{{ d.get(l) }}", BERTH_INVALID_ARGUMENT, "unhashable type: 'list'");
    check_refusal("{{ l is filter }}", BERTH_INVALID_ARGUMENT, "unhashable type: 'list'");
    check_refusal("{{ d is test }}", BERTH_INVALID_ARGUMENT, "unhashable type: 'dict'");
    check_refusal("{{ u_ | int(5) }}", BERTH_INVALID_ARGUMENT, "'u_' is undefined");
    check_refusal("{{ u_ | float }}", BERTH_INVALID_ARGUMENT, "'u_' is undefined");
    check_refusal("{{ n[::-1] }}", BERTH_INVALID_ARGUMENT, "a 'int' cannot be sliced");
    check_refusal("{{ d[:1] }}", BERTH_INVALID_ARGUMENT, "a 'dict' cannot be sliced");
    check_refusal("{{ 3 | truncate }}", BERTH_INVALID_ARGUMENT, "has no length");
    check_refusal("{{ l | truncate(1, true, '', 0) }}", BERTH_UNSUPPORTED, "truncate of a long");
    check_refusal("{{ l | random }}", BERTH_UNSUPPORTED, "the same conversation");
}

TEST(what_a_template_does_wrong_is_told_with_its_line) {
    check_refusal("a\n\n{{ x.y }}", BERTH_INVALID_ARGUMENT, "test.jinja:3: 'x' is undefined");
    check_refusal("\n{{ raise_exception('no ' ~ n) }}", BERTH_INVALID_ARGUMENT,
                  "test.jinja:2: the template refuses: no 3");
    check_refusal("{{ l.append(1) }}", BERTH_INVALID_ARGUMENT, "must not change it");
    check_refusal("{% if n %}\n", BERTH_CORRUPT, "has no {% endif %}");
    check_refusal("{% endif %}", BERTH_CORRUPT, "unexpected {% endif %}");
    check_refusal("{{ n", BERTH_CORRUPT, "ends inside of a tag");
    check_refusal("{{ 'a }}", BERTH_CORRUPT, "without its closing '");
    check_refusal("{{ n n }}", BERTH_CORRUPT, "expected the end of the tag, found 'n'");
    check_refusal("{{ (n] }}", BERTH_CORRUPT, "unexpected ']'");
    check_refusal("{% break %}", BERTH_CORRUPT, "outside of a loop");
    check_refusal("\n{% include 'x' %}", BERTH_UNSUPPORTED, "test.jinja:2: the tag {% include %}");
    check_refusal("{{ n | nosuch }}", BERTH_UNSUPPORTED, "filter or test 'nosuch'");
}

TEST(a_hostile_template_is_refused_within_its_limits) {
    check_refusal(
        "{% set r = range(9999) %}{% for a in r %}{% for b in r %}{% endfor %}{% endfor %}",
        BERTH_OUT_OF_MEMORY, "does not come to an end");
    check_refusal("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", BERTH_OUT_OF_MEMORY,
                  "nested deeper");
    check_refusal("{{ 'a' * 999999999999 }}", BERTH_OUT_OF_MEMORY, "MiB");
    check_refusal("{{ range(999999999) }}", BERTH_INVALID_ARGUMENT, "a range of more than");
    check_refusal("{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}", BERTH_OUT_OF_MEMORY,
                  "nested deeper");
    check_refusal("{% set ns = namespace(a='0123456789') %}{% for i in range(99) %}"
                  "{% set ns.a = ns.a ~ ns.a %}{% endfor %}",
                  BERTH_OUT_OF_MEMORY, "MiB");
}

TEST(a_checkpoint_names_its_template_in_either_file) {
    sandbox box;
    berth_chat *chat;
    berth_json *variables;
    berth_text text;
    sandbox_make(&box);
    CHECK_STATUS(berth_chat_open(box.dir, &chat), BERTH_NOT_FOUND);
    CHECK_CONTAINS(berth_status_message(), "there is no chat template");
    CHECK_OK(berth_file_write(
        sandbox_path(&box, "tokenizer_config.json"),
        BERTH_STR("{\"bos_token\": {\"content\": \"<s>\"}, \"chat_template\": [{\"name\": "
                  "\"default\", \"template\": \"{{ bos_token }}D\"}, {\"name\": \"tool_use\", "
                  "\"template\": \"T{{ eos_token }}\"}]}")));
    CHECK_OK(
        berth_json_parse(BERTH_STR("{\"tools\": [], \"eos_token\": 1}"), "v", NULL, &variables));
    CHECK_OK(berth_chat_open(box.dir, &chat));
    berth_text_init(&text, 64);
    CHECK_OK(berth_chat_render(chat, variables, NOON, &text));
    CHECK_STR(text.data, "T1");
    berth_text_clear(&text);
    berth_chat_close(chat);
    CHECK_OK(berth_file_write(sandbox_path(&box, "chat_template.jinja"),
                              BERTH_STR("{{ bos_token }}F\n")));
    CHECK_OK(berth_chat_open(box.dir, &chat));
    CHECK_OK(berth_chat_render(chat, variables, NOON, &text));
    CHECK_STR(text.data, "<s>F");
    berth_text_deinit(&text);
    berth_json_destroy(variables);
    berth_chat_close(chat);
    sandbox_remove(&box);
}

// Every member of an entry but its own is a variable where the entry has no `context`.
static void check_entry(const berth_json *entry) {
    const berth_json *variables = berth_json_find(entry, "context");
    berth_str source, expected = {0};
    berth_text text;
    CHECK_OK(berth_json_get_str(entry, "template", &source));
    berth_text_init(&text, BERTH_CHAT_TEXT_BYTES);
    const berth_status status = render_with(source, variables ? variables : entry, &text);
    if (berth_json_has(entry, "raises")) {
        CHECK_STATUS(status, BERTH_INVALID_ARGUMENT);
    } else {
        CHECK_OK(status);
        CHECK_OK(berth_json_get_str(entry, "expected", &expected));
        CHECK_UINT(text.size, expected.size);
        CHECK_BYTES(text.data, expected.data, expected.size);
    }
    berth_text_deinit(&text);
}

static void check_shared(const char *path, const char *list) {
    berth_json *file;
    const berth_json *entries;
    if (!berth_path_exists(path)) {
        SKIP("needs ../shared/data/chat");
    }
    CHECK_OK(berth_json_load(path, NULL, &file));
    CHECK_OK(berth_json_get_array(file, list, &entries));
    for (size_t i = 0; i < berth_json_size(entries); ++i) {
        check_entry(berth_json_at(entries, i));
    }
    berth_json_destroy(file);
}

TEST(templates_of_real_checkpoints_render_byte_for_byte) {
    check_shared(SHARED_CASES, "cases");
}

TEST(single_constructs_render_byte_for_byte) {
    check_shared(SHARED_SINGLE, "");
}

// ---- what the fuzzer starts from ----

TEST(the_fuzzers_templates_render_or_are_refused) {
    berth_arena *arena;
    berth_dir_listing files;
    CHECK_OK(berth_arena_create(1 << 16, FILE_LIMIT, &arena));
    CHECK_OK(berth_dir_list("tests/fuzz/chat_template", arena, &files));
    CHECK(files.count > 0);
    for (size_t i = 0; i < files.count; ++i) {
        char *data;
        size_t size;
        berth_text text;
        const char *path = berth_path_join(arena, "tests/fuzz/chat_template", files.names[i]);
        CHECK_OK(berth_file_read(path, FILE_LIMIT, &data, &size));
        if (render((berth_str){.data = data, .size = size}, &text) != BERTH_OK) {
            CHECK_CONTAINS(berth_status_message(), "test.jinja:");
        }
        berth_text_deinit(&text);
        berth_free(data);
    }
    berth_arena_destroy(arena);
}
