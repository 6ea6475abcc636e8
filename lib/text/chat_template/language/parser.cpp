#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "text/chat_template/language/expressions.h"

namespace dslaunch::text::jinja {
namespace {

using Ends = std::initializer_list<std::string_view>;

class TemplateParser : public ExpressionParser {
  public:
    using ExpressionParser::ExpressionParser;

    Tree run() {
        Tree tree;
        tree.body = body({});
        tree.names = stream_.take_names();
        tree.has_generation = has_generation_;
        return tree;
    }

  private:
    using Kind = Statement::Kind;
    using Type = Token::Type;

    // Records that a macro uses `caller`, `varargs` or `kwargs` although it has no such parameter.
    void see(const std::string& name) override {
        if (name != "caller" && name != "varargs" && name != "kwargs") return;
        for (Signature* signature : open_signatures_) {
            if (std::ranges::any_of(signature->parameters, [&](const Parameter& parameter) {
                    return parameter.name.text == name;
                }))
                continue;
            if (name != "caller")
                stream_.stop(fmt::format("`{}` of a macro is not supported", name));
            signature->takes_caller = true;
        }
    }

    // Reads text, expressions and tags up to a tag whose name is in ENDS. Does not read this name.
    // Without ENDS, reads up to the end of the template.
    Body body(Ends ends) {
        const TemplateTokens::Level level(stream_);
        Body statements;
        while (!stream_.is(Type::kEnd)) {
            Statement statement;
            statement.line = stream_.line();
            if (stream_.is(Type::kData)) {
                statement.text = stream_.take().text;
            } else if (stream_.is(Type::kVariableBegin)) {
                stream_.take();
                statement.kind = Kind::kPrint;
                statement.value = tuple();
                stream_.expect(Type::kVariableEnd, "`}}`");
            } else {
                stream_.take();
                if (std::ranges::any_of(ends,
                                        [&](std::string_view end) { return stream_.is_name(end); }))
                    return statements;
                tag(statement);
                stream_.expect(Type::kBlockEnd, "`%}`");
            }
            statements.push_back(std::move(statement));
        }
        std::string due;
        for (const std::string_view end : ends)
            due += fmt::format("{}`{{% {} %}}`", due.empty() ? "" : " or ", end);
        if (!due.empty()) stream_.stop("the template ends before " + due);
        return statements;
    }

    // Reads the rest of a tag that begins a body, and then the body up to the name of its end tag.
    // Moves past this name only if TAKES_END is true.
    Body tag_body(Ends ends, bool takes_end = true) {
        stream_.skip_operator(":");
        stream_.expect(Type::kBlockEnd, "`%}`");
        Body statements = body(ends);
        if (takes_end) stream_.take();
        return statements;
    }
    // Does the same as tag_body(), but a `break` in the body cannot leave a loop around it.
    Body closed_body(Ends ends) {
        const int loops = std::exchange(loops_, 0);
        Body statements = tag_body(ends);
        loops_ = loops;
        return statements;
    }

    void tag(Statement& statement) {
        struct Row {
            std::string_view name;
            Kind kind;
            void (TemplateParser::*parse)(Statement&);
        };
        static constexpr Row kTags[] = {
            {"if", Kind::kIf, &TemplateParser::if_tag},
            {"for", Kind::kFor, &TemplateParser::for_tag},
            {"set", Kind::kSet, &TemplateParser::set_tag},
            {"macro", Kind::kMacro, &TemplateParser::macro_tag},
            {"call", Kind::kCallBlock, &TemplateParser::call_tag},
            {"filter", Kind::kFilterBlock, &TemplateParser::filter_tag},
            {"with", Kind::kWith, &TemplateParser::with_tag},
            {"generation", Kind::kGeneration, &TemplateParser::generation_tag},
            {"break", Kind::kBreak, &TemplateParser::leave_tag},
            {"continue", Kind::kContinue, &TemplateParser::leave_tag},
            {"include", Kind::kRefused, &TemplateParser::other_template_tag},
            {"import", Kind::kRefused, &TemplateParser::other_template_tag},
            {"from", Kind::kRefused, &TemplateParser::other_template_tag},
        };
        static constexpr std::string_view kRefusedTags[] = {"autoescape", "block", "do",
                                                            "extends",    "print", "trans"};
        if (!stream_.is(Type::kName)) stream_.stop("expected the name of a tag after `{%`");
        const std::string name = stream_.now().text;
        for (const Row& row : kTags) {
            if (row.name != name) continue;
            statement.kind = row.kind;
            statement.text = stream_.take().text;
            return (this->*row.parse)(statement);
        }
        if (std::ranges::count(kRefusedTags, name) > 0)
            stream_.stop(fmt::format("the tag `{}` is not supported", name));
        stream_.stop(fmt::format(
            "there is no tag `{}` here: the tag is misspelled, or does not close the last open tag",
            name));
    }

    void if_tag(Statement& statement) {
        statement.value = tuple(/*with_choice=*/false);
        statement.body = tag_body({"elif", "else", "endif"}, false);
        for (;;) {
            const Token end = stream_.take();
            if (end.text == "endif") return;
            if (end.text == "else") {
                statement.otherwise = tag_body({"endif"});
                return;
            }
            Statement branch;
            branch.line = end.line;
            branch.value = tuple(/*with_choice=*/false);
            branch.body = tag_body({"elif", "else", "endif"}, false);
            statement.branches.push_back(std::move(branch));
        }
    }

    void for_tag(Statement& statement) {
        statement.target = target(false, "in");
        if (stores_loop(statement.target))
            TemplateTokens::stop(statement.line, "a loop cannot assign to its own variable `loop`");
        if (!stream_.skip_name("in")) stream_.stop("expected `in` after the names of a loop");
        statement.value = tuple(/*with_choice=*/false);
        if (stream_.skip_name("if")) statement.test = expression();
        if (stream_.is_name("recursive")) stream_.stop("a `recursive` loop is not supported");
        ++loops_;
        ++all_loops_;
        statement.body = tag_body({"endfor", "else"}, false);
        --loops_;
        if (stream_.take().text == "else") statement.otherwise = tag_body({"endfor"});
        --all_loops_;
    }

    [[nodiscard]] static bool stores_loop(const Target& target) {
        if (target.kind == Target::Kind::kName) return target.name.text == "loop";
        return std::ranges::any_of(target.parts, stores_loop);
    }

    void set_tag(Statement& statement) {
        statement.target = target(true, {});
        if (all_loops_ > 0 && stores_loop(statement.target))
            TemplateTokens::stop(statement.line,
                                 "`loop` belongs to the surrounding loop: use another name");
        if (stream_.skip_operator("=")) {
            statement.value = tuple();
            return;
        }
        statement.kind = Kind::kSetBlock;
        statement.value = filters(nullptr, false);
        statement.body = tag_body({"endset"});
    }

    // Reads one name, or several names in parentheses. If FIELDS is true, the name may also be
    // `namespace.field`.
    Target one_target(bool fields) {
        const TemplateTokens::Level level(stream_);
        if (stream_.skip_operator("(")) {
            Target inner = target(false, {});
            stream_.expect_operator(")");
            return inner;
        }
        Target one;
        const Token name = stream_.expect_name("a name to assign to");
        for (const char* constant : {"true", "false", "none", "True", "False", "None"})
            if (name.text == constant)
                TemplateTokens::stop(
                    name.line, fmt::format("`{}` is a constant and cannot be assigned", name.text));
        one.name = stream_.named(name.text);
        if (fields && stream_.skip_operator(".")) {
            one.kind = Target::Kind::kField;
            one.field = stream_.expect_name("a field's name").text;
            see(name.text);
        }
        return one;
    }

    // Reads one target, or several separated by commas, up to the name END.
    Target target(bool fields, std::string_view end) {
        Target all;
        all.kind = Target::Kind::kTuple;
        const auto at_end = [&] {
            return stream_.is(Type::kBlockEnd) || stream_.is_operator(")") ||
                   (!end.empty() && stream_.is_name(end)) || stream_.is_operator("=");
        };
        bool is_tuple = false;
        while (!at_end()) {
            all.parts.push_back(one_target(fields));
            if (!stream_.skip_operator(",")) break;
            is_tuple = true;
        }
        if (all.parts.empty()) stream_.stop("expected a name to assign to");
        if (is_tuple) return all;
        Target one = std::move(all.parts.front());
        return one;
    }

    void signature(Signature& signature) {
        stream_.expect_operator("(");
        auto& parameters = signature.parameters;
        while (!stream_.is_operator(")")) {
            if (!parameters.empty()) stream_.expect_operator(",");
            const Token name = stream_.expect_name("a parameter's name");
            for (const Parameter& other : parameters)
                if (other.name.text == name.text)
                    stream_.stop(fmt::format("two parameters have the name `{}`", name.text));
            Parameter parameter;
            parameter.name = stream_.named(name.text);
            if (stream_.skip_operator("=")) {
                parameter.fallback = expression();
            } else if (!parameters.empty() && parameters.back().fallback != nullptr) {
                stream_.stop("a parameter without a default follows one with a default");
            } else if (name.text == "caller") {
                stream_.stop("the parameter `caller` needs a default");
            }
            parameters.push_back(std::move(parameter));
        }
        stream_.take();
    }

    void function_body(Statement& statement, std::string_view end) {
        open_signatures_.push_back(&statement.signature);
        statement.body = closed_body({end});
        open_signatures_.pop_back();
    }

    void macro_tag(Statement& statement) {
        statement.target = one_target(false);
        statement.signature.name = statement.target.name.text;
        signature(statement.signature);
        function_body(statement, "endmacro");
    }

    void call_tag(Statement& statement) {
        if (stream_.is_operator("(")) signature(statement.signature);
        statement.value = expression();
        if (statement.value->kind != Expression::Kind::kCall)
            TemplateTokens::stop(statement.line, "the tag `call` needs the call of a macro");
        statement.signature.name = "caller";
        function_body(statement, "endcall");
    }

    void generation_tag(Statement& statement) {
        has_generation_ = true;
        statement.body = closed_body({"endgeneration"});
    }

    void filter_tag(Statement& statement) {
        statement.value = filters(nullptr, true);
        statement.body = tag_body({"endfilter"});
    }

    void with_tag(Statement& statement) {
        while (!stream_.is(Type::kBlockEnd)) {
            if (!statement.assignments.empty()) stream_.expect_operator(",");
            Target one = target(false, {});
            stream_.expect_operator("=");
            statement.assignments.emplace_back(std::move(one), expression());
        }
        statement.body = tag_body({"endwith"});
    }

    void leave_tag(Statement& statement) {
        if (loops_ == 0)
            stream_.stop(fmt::format("`{}` is used outside of a loop", statement.text));
    }

    // Reads a tag that refers to other templates. The tag is refused only when it is executed, as
    // in Jinja2 without a loader.
    void other_template_tag(Statement& statement) {
        statement.value = expression();
        while (!stream_.is(Type::kBlockEnd) && !stream_.is(Type::kEnd)) stream_.take();
    }

    std::vector<Signature*> open_signatures_;
    int loops_ = 0;      // loops that a `break` here could leave
    int all_loops_ = 0;  // all loops around this place
    bool has_generation_ = false;
};

}  // namespace

Tree parse_template(std::string_view source) {
    return TemplateParser(tokens_of(source)).run();
}

}  // namespace dslaunch::text::jinja
