// Actions that a template may not do, and the texts of its errors.
#include <nlohmann/json.hpp>
#include <thread>

#include "support/catch.h"
#include "support/text_tools.h"
#include "text/chat_template/chat_template.h"

using namespace dslaunch;
using namespace dslaunch::text;
using namespace dslaunch::test;

namespace {

std::string rendering_error(const std::string& source) {
    TemplateOptions options;
    options.limits.steps_max = 3'000'000;
    return error_of(ExitCode::kInput, [&] {
        static_cast<void>(
            ChatTemplate::parse(source, "t").render(nlohmann::ordered_json::object(), options));
    });
}

}  // namespace

TEST_CASE("an error of a template names its line") {
    const std::pair<const char*, const char*> rows[] = {
        {"a\n{% if x %}\nb", "t:3: not a valid template: the template ends before"},
        {"a\n\n{{ 1 +\n}}", "t:4: not a valid template: expected an expression, found `}}`"},
        {"a\n{{ 'x' }}\n{{ 1 / 0 }}", "t:3: a division by zero"},
        {"{% macro f() %}\n{{ none.x.y }}\n{% endmacro %}\n\n{{ f() }}", "t:2: "},
        {"\n{{ raise_exception('roles must alternate') }}",
         "t:2: the template raised an error: roles must alternate"},
        {"\n\n{{ missing.x }}", "t:3: 'missing' is undefined, so `x` cannot be read from it"},
        {"{% include 'x' %}", "t:1: `include` would load another template"},
        {"{{ 9223372036854775808 + 1 }}", "does not fit in 64 bits"},
        {"{{ 9223372036854775807 * 3 }}", "does not fit in 64 bits"},
        {"{{ range(9223372036854775808) }}", "does not fit in 64 bits"},
        {"{{ {}['content'] + 'x' }}", "'content' is undefined"},
        {"{{ [].append(1) }}", "`append` would change a list"},
        {"{{ 'x'.nosuch() }}", "a value of type str has no method `nosuch`"},
        {"{{ self }}", "a function cannot be printed"},
        {"{{ '\\ud83d' }}", "half of a surrogate pair"},
        {"{{ grüße }}", "names must be ASCII"},
        {"\xFF", "t:1: the line contains a byte that is not UTF-8"},
    };
    for (const auto& [source, message] : rows) {
        INFO(source);
        CHECK_THAT(rendering_error(source), Catch::Contains(message));
    }
}

// No public template uses these. Each is refused by its name, and never rendered in another way.
TEST_CASE("what Jinja2 has and chat templates do not use is refused by name") {
    const std::pair<const char*, const char*> rows[] = {
        {"\n{{ 'x' | urlize }}", "t:2: the filter `urlize` is not supported"},
        {"{{ '<' | escape }}", "`escape` is not supported"},
        {"{{ 'a' | center(3) }}", "`center` is not supported"},
        {"{{ [1] | batch(2) }}", "`batch` is not supported"},
        {"{{ [{}] | groupby('a') }}", "`groupby` is not supported"},
        {"{{ 2.5 | round }}", "`round` is not supported"},
        {"{{ '0x1f' | int(0, 16) }}", "`int` takes at most 1 arguments"},
        {"{{ 'a'.zfill(3) }}", "`zfill` is not supported"},
        {"{{ 'a'.zfill is defined }}", "`zfill` is not supported"},
        {"{{ range(3).stop }}", "the attribute `stop` is not supported"},
        {"{{ (5).real }}", "the attribute `real` is not supported"},
        {"{{ range(3).index(1) }}", "`index` is not supported"},
        {"{{ '٣' | int }}", "digits other than 0 to 9"},
        {"{{ ' a b'.rsplit(none, 1) }}", "rsplit() with a count but without a separator"},
        {"{{ {}.copy() }}", "`copy` is not supported"},
        {"{{ [].index(1) }}", "`index` is not supported"},
        {"{{ '%5.1f' % 2.5 }}", "only %s, %d and %% after a `%`"},
        {"{{ '%d' % 2.5 }}", "a whole number cannot print a value of type float"},
        {"{{ '%(k)s' % {'k': 1} }}", "only %s, %d and %% after a `%`"},
        {"{{ '{:>5}'.format('a') }}", "the field `{:>5}` of the format"},
        {"{{ '{0.x}'.format('a') }}", "the field `{0.x}` of the format"},
        {"{{ '{'.format(1) }}", "an unmatched brace"},
        {"{{ 'A' is upper }}", "the test `upper` is not supported"},
        {"{{ cycler(1, 2) }}", "`cycler` is not supported"},
        {"{% for x in [1] %}{{ loop.cycle(1, 2) }}{% endfor %}", "`loop.cycle` is not supported"},
        {"{% for x in [1] recursive %}{% endfor %}", "a `recursive` loop is not supported"},
        {"{% macro f() %}{{ varargs }}{% endmacro %}", "`varargs` of a macro is not supported"},
        {"{% macro f() %}{% endmacro %}{{ f.name }}", "the attribute `name` of a macro"},
        {"{% block x %}{% endblock %}", "the tag `block` is not supported"},
        {"{% autoescape true %}{% endautoescape %}", "the tag `autoescape` is not supported"},
        {"{{ 2 ** 3 }}", "the operator `**` is not supported"},
        {"{{ 7.5 // 2 }}", "`//` and `%` of floats are not supported"},
        {"{{ 0x1F }}", "only numbers in decimal digits are supported"},
        {"{{ 1_000 }}", "only numbers in decimal digits are supported"},
        {"{{ '\\101' }}", "this escape sequence is not supported"},
        {"{{ range(3) }}", "a range cannot be printed: put the filter `list`"},
        {"{{ {}.keys() }}", "a dict view cannot be printed: put the filter `list`"},
        {"{{ [1] | map('abs') }}", "a generator cannot be printed"},
        {"{{ [{'a': 1}] | sort(attribute='a,b') }}", "an attribute with several names"},
        {"{{ 18446744073709551616 < 1 }}", "ordering whole numbers over 64 bits is not supported"},
        {"{{ 18446744073709551616 == 1.5 }}", "comparing a whole number over 64 bits with a float"},
        {"{{ 18446744073709551616 | float }}",
         "a whole number over 64 bits cannot be converted to a float"},
    };
    for (const auto& [source, message] : rows) {
        INFO(source);
        CHECK_THAT(rendering_error(source), Catch::Contains(message));
    }
}

TEST_CASE("a template can neither hang nor fill the memory nor overflow the stack") {
    const std::pair<std::string, const char*> rows[] = {
        {"{{ range(1000000000000) }}", "a range has 1000000000000 elements"},
        {"{{ 'a' * 10000000000 }}", "too much memory"},
        {"{{ [1] * 1000000000 }}", "too much memory"},
        {"{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}"
         "{% endfor %}",
         ""},
        {"{% set ns = namespace(x=[1]) %}{% for i in range(40) %}{% set ns.x = [ns.x, ns.x] %}"
         "{% endfor %}{{ ns.x }}",
         ""},
        {"{% set ns = namespace(x=[]) %}{% for i in range(999) %}{% set ns.x = [ns.x] %}"
         "{% endfor %}",
         "more than 200 levels deep"},
        {"{% set ns = namespace() %}{% for i in range(999) %}{% set ns.x = {'x': ns.x}.get %}"
         "{% endfor %}",
         "more than 200 levels deep"},
        {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "too deep"},
        {"{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
         "too many steps"},
        {"{% for i in range(99999) %}{{ 'x' * 100000 }}{% endfor %}", ""},
        {"{{ " + repeated("(", 1000) + "1" + repeated(")", 1000) + " }}", "too deep"},
        {"{{ 1" + repeated(" + 1", 1000) + " }}", "more than 200 levels"},
        {repeated("{% if 1 %}", 1000), "too deep"},
    };
    for (const auto& [source, message] : rows) {
        INFO(source.substr(0, 100));
        const std::string error = rendering_error(source);
        CHECK(error != "accepted");
        CHECK_THAT(error, Catch::Contains(message));
    }
}

TEST_CASE("a namespace that holds itself is let go of") {
    CHECK(ChatTemplate::parse(
              "{% set n = namespace() %}{% set n.me = [n] %}{{ n.me[0].me | length }}", "t")
              .render(nlohmann::ordered_json::object())
              .text == "1");
}

TEST_CASE("a loop that is over has no more elements") {
    CHECK(ChatTemplate::parse("{% set n = namespace() %}{% for x in [1, 2] %}{% set n.l = loop %}"
                              "{% endfor %}{{ n.l.last }}{{ n.l.length }}{{ n.l.nextitem }}",
                              "t")
              .render(nlohmann::ordered_json::object())
              .text == "True2");
}

TEST_CASE("a limit of steps is kept") {
    TemplateOptions options;
    options.limits.steps_max = 1000;
    const ChatTemplate loop = ChatTemplate::parse("{% for i in range(n) %}x{% endfor %}", "t");
    CHECK(loop.render({{"n", jinja::Value::integer(50)}}, options).text.size() == 50);
    CHECK_THAT(
        error_of(ExitCode::kInput,
                 [&] {
                     static_cast<void>(loop.render({{"n", jinja::Value::integer(5000)}}, options));
                 }),
        Catch::Contains("too many steps"));
}

TEST_CASE("several threads render one template") {
    const ChatTemplate shared = ChatTemplate::parse(
        "{% set x = {'k': ['é', 1.5]} %}{% for i in range(200) %}{{ x.k[0] ~ i }}{% endfor %}",
        "t");
    const std::string expected = shared.render(nlohmann::ordered_json::object()).text;
    std::vector<std::string> texts(4);
    {
        std::vector<std::jthread> threads;
        for (std::string& text : texts)
            threads.emplace_back(
                [&] { text = shared.render(nlohmann::ordered_json::object()).text; });
    }
    for (const std::string& text : texts) CHECK(text == expected);
}
