#include "text/chat_template/language/statements.h"

#include "text/chat_template/language/expressions.h"
#include "text/chat_template/language/token_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <utility>

namespace dslaunch::text::jinja {
namespace {

using Ends = std::initializer_list<std::string_view>;

class StatementParser {
  public:
    explicit StatementParser(std::vector<Token> tokens)
        : stream_(std::move(tokens)),
          expressions_(stream_, [this](const std::string& name) { see(name); }) {}

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

    // What the body of a macro says of the arguments that only have a name in it.
    void see(const std::string& name) {
        for (Signature* signature : open_signatures_) {
            if (name == "varargs") signature->takes_more_positional = true;
            if (name == "kwargs") signature->takes_more_named = true;
            if (name == "caller") signature->takes_caller = true;
        }
    }

    // Text, expressions and tags up to one of ENDS, whose name is left in the stream; without ENDS
    // up to the template's end.
    Body body(Ends ends) {
        const TokenStream::Level level(stream_);
        Body statements;
        while (!stream_.is(Type::kEnd)) {
            Statement statement;
            statement.line = stream_.line();
            if (stream_.is(Type::kData)) {
                statement.text = stream_.take().text;
            } else if (stream_.is(Type::kVariableBegin)) {
                stream_.take();
                statement.kind = Kind::kPrint;
                statement.value = expressions_.tuple();
                stream_.expect(Type::kVariableEnd, "`}}`");
            } else {
                stream_.take();
                if (at_one_of(ends)) return statements;
                tag(statement, statements);
                stream_.expect(Type::kBlockEnd, "`%}`");
                if (statement.kind == Kind::kPrint) continue;  // each of its values is put there
            }
            statements.push_back(std::move(statement));
        }
        if (ends.size() > 0) stream_.stop(fmt::format("the template ends before {}", due(ends)));
        return statements;
    }

    [[nodiscard]] bool at_one_of(Ends ends) const {
        return std::any_of(ends.begin(), ends.end(),
                           [&](std::string_view end) { return stream_.is_name(end); });
    }

    [[nodiscard]] static std::string due(Ends ends) {
        std::string text;
        for (const std::string_view end : ends)
            text += fmt::format("{}`{{% {} %}}`", text.empty() ? "" : " or ", end);
        return text;
    }

    // The rest of the tag whose contents begin a body, and the body. The stream stands behind the
    // name of the end, or at it.
    Body tag_body(Ends ends, bool takes_end = true) {
        stream_.skip_operator(":");
        stream_.expect(Type::kBlockEnd, "`%}`");
        Body statements = body(ends);
        if (takes_end) stream_.take();
        return statements;
    }

    void tag(Statement& statement, Body& before) {
        struct Row {
            std::string_view name;
            void (StatementParser::*parse)(Statement&);
        };
        static constexpr Row kTags[] = {
            {"if", &StatementParser::if_tag},
            {"for", &StatementParser::for_tag},
            {"set", &StatementParser::set_tag},
            {"macro", &StatementParser::macro_tag},
            {"call", &StatementParser::call_tag},
            {"filter", &StatementParser::filter_tag},
            {"with", &StatementParser::with_tag},
            {"block", &StatementParser::block_tag},
            {"autoescape", &StatementParser::autoescape_tag},
            {"generation", &StatementParser::generation_tag},
            {"break", &StatementParser::leave_tag},
            {"continue", &StatementParser::leave_tag},
            {"include", &StatementParser::other_template_tag},
            {"import", &StatementParser::other_template_tag},
            {"from", &StatementParser::other_template_tag},
            {"extends", &StatementParser::other_template_tag},
        };
        if (!stream_.is(Type::kName)) stream_.stop("a tag's name is due behind `{%`");
        if (stream_.is_name("print")) return print_tag(statement, before);
        for (const Row& row : kTags)
            if (stream_.is_name(row.name)) return (this->*row.parse)(statement);
        stream_.stop(
            fmt::format("there is no tag `{}` here: a tag is misspelled, or closes another "
                        "one than the last that is open",
                        stream_.now().text));
    }

    void print_tag(Statement& statement, Body& before) {
        const int line = stream_.take().line;
        statement.kind = Kind::kPrint;
        for (bool is_first = true; !stream_.is(Type::kBlockEnd); is_first = false) {
            if (!is_first) stream_.expect_operator(",");
            Statement one;
            one.kind = Kind::kPrint;
            one.line = line;
            one.value = expressions_.expression();
            before.push_back(std::move(one));
        }
    }

    ExpressionPtr condition() {
        ExpressionParser::TupleRules rules;
        rules.with_choice = false;
        return expressions_.tuple(rules);
    }

    void if_tag(Statement& statement) {
        statement.kind = Kind::kIf;
        stream_.take();
        statement.value = condition();
        statement.body = tag_body({"elif", "else", "endif"}, false);
        for (;;) {
            const Token end = stream_.take();
            if (end.text == "endif") return;
            if (end.text == "else") {
                statement.otherwise = tag_body({"endif"});
                return;
            }
            Statement branch;
            branch.kind = Kind::kIf;
            branch.line = end.line;
            branch.value = condition();
            branch.body = tag_body({"elif", "else", "endif"}, false);
            statement.branches.push_back(std::move(branch));
        }
    }

    void for_tag(Statement& statement) {
        statement.kind = Kind::kFor;
        stream_.take();
        statement.target = target(false, "in");
        if (stores_loop(statement.target))
            TokenStream::stop(statement.line, "a loop assigns to `loop`, which it has already");
        if (!stream_.skip_name("in")) stream_.stop("`in` is due behind the names of a loop");
        ExpressionParser::TupleRules rules;
        rules.with_choice = false;
        rules.ends_before = "recursive";
        statement.value = expressions_.tuple(rules);
        if (stream_.skip_name("if")) statement.test = expressions_.expression();
        statement.is_marked = stream_.skip_name("recursive");
        ++loops_;
        ++all_loops_;
        statement.body = tag_body({"endfor", "else"}, false);
        --loops_;
        if (stream_.take().text == "else") statement.otherwise = tag_body({"endfor"});
        --all_loops_;
    }

    [[nodiscard]] static bool stores_loop(const Target& target) {
        if (target.kind == Target::Kind::kName) return target.name.text == "loop";
        return std::any_of(target.parts.begin(), target.parts.end(), stores_loop);
    }

    void set_tag(Statement& statement) {
        stream_.take();
        statement.target = target(true, {});
        if (all_loops_ > 0 && stores_loop(statement.target))
            TokenStream::stop(statement.line, "`loop` belongs to the loop around: another name");
        if (stream_.skip_operator("=")) {
            statement.kind = Kind::kSet;
            statement.value = expressions_.tuple();
            return;
        }
        statement.kind = Kind::kSetBlock;
        statement.value = expressions_.filters(nullptr, false);
        statement.body = tag_body({"endset"});
    }

    // One name, a field of a namespace if FIELDS, or several in parentheses or between commas.
    Target one_target(bool fields) {
        const TokenStream::Level level(stream_);
        Target one;
        one.line = stream_.line();
        if (stream_.skip_operator("(")) {
            one = target(false, {});
            stream_.expect_operator(")");
            return one;
        }
        const Token name = stream_.expect_name("a name to assign to");
        for (const char* constant : {"true", "false", "none", "True", "False", "None"})
            if (name.text == constant)
                TokenStream::stop(name.line, fmt::format("`{}` takes no value", name.text));
        one.name = {name.text, stream_.number_of(name.text)};
        if (fields && stream_.skip_operator(".")) {
            one.kind = Target::Kind::kField;
            one.field = stream_.expect_name("a field's name").text;
            see(name.text);
        }
        return one;
    }

    Target target(bool fields, std::string_view end) {
        Target all;
        all.kind = Target::Kind::kTuple;
        all.line = stream_.line();
        const auto at_end = [&] {
            return stream_.is(Type::kBlockEnd) || stream_.is_operator(")") ||
                   (!end.empty() && stream_.is_name(end)) || stream_.is_operator("=");
        };
        bool is_tuple = false;
        while (!at_end()) {
            all.parts.push_back(one_target(fields));
            if (!stream_.is_operator(",")) break;
            is_tuple = true;
            stream_.take();
        }
        if (all.parts.empty()) stream_.stop("a name to assign to is due");
        if (is_tuple) return all;
        Target one = std::move(all.parts.front());
        return one;
    }

    void signature(Signature& signature) {
        stream_.expect_operator("(");
        while (!stream_.is_operator(")")) {
            if (!signature.parameters.empty()) stream_.expect_operator(",");
            const Token name = stream_.expect_name("a parameter's name");
            for (const Parameter& other : signature.parameters)
                if (other.name.text == name.text)
                    stream_.stop(fmt::format("two parameters have the name `{}`", name.text));
            Parameter parameter;
            parameter.name = {name.text, stream_.number_of(name.text)};
            if (stream_.skip_operator("=")) {
                parameter.fallback = expressions_.expression();
            } else if (!signature.parameters.empty() &&
                       signature.parameters.back().fallback != nullptr) {
                stream_.stop("a parameter without a default follows one with a default");
            } else if (name.text == "caller") {
                stream_.stop("the parameter `caller` needs a value");
            }
            signature.parameters.push_back(std::move(parameter));
        }
        stream_.expect_operator(")");
    }

    // The body of a macro and its like, with what it says of its arguments.
    void function_body(Statement& statement, std::string_view end) {
        Signature& own = statement.signature;
        open_signatures_.push_back(&own);
        const int loops = std::exchange(loops_, 0);
        statement.body = tag_body({end});
        loops_ = loops;
        open_signatures_.pop_back();
        for (const Parameter& parameter : own.parameters) {
            if (parameter.name.text == "caller") own.takes_caller = false;
            if (parameter.name.text == "varargs") own.takes_more_positional = false;
            if (parameter.name.text == "kwargs") own.takes_more_named = false;
        }
    }

    void macro_tag(Statement& statement) {
        statement.kind = Kind::kMacro;
        stream_.take();
        statement.target = one_target(false);
        statement.signature.name = statement.target.name.text;
        signature(statement.signature);
        function_body(statement, "endmacro");
    }

    void call_tag(Statement& statement) {
        statement.kind = Kind::kCallBlock;
        stream_.take();
        if (stream_.is_operator("(")) signature(statement.signature);
        statement.value = expressions_.expression();
        if (statement.value->kind != Expression::Kind::kCall)
            TokenStream::stop(statement.line, "the tag `call` needs the call of a macro");
        statement.signature.name = "caller";
        function_body(statement, "endcall");
    }

    void generation_tag(Statement& statement) {
        statement.kind = Kind::kGeneration;
        stream_.take();
        has_generation_ = true;
        const int loops = std::exchange(loops_, 0);
        stream_.skip_operator(":");
        statement.body = tag_body({"endgeneration"});
        loops_ = loops;
    }

    void filter_tag(Statement& statement) {
        statement.kind = Kind::kFilterBlock;
        stream_.take();
        statement.value = expressions_.filters(nullptr, true);
        statement.body = tag_body({"endfilter"});
    }

    void with_tag(Statement& statement) {
        statement.kind = Kind::kWith;
        stream_.take();
        while (!stream_.is(Type::kBlockEnd)) {
            if (!statement.assignments.empty()) stream_.expect_operator(",");
            Target one = target(false, {});
            stream_.expect_operator("=");
            statement.assignments.emplace_back(std::move(one), expressions_.expression());
        }
        statement.body = tag_body({"endwith"});
    }

    void block_tag(Statement& statement) {
        statement.kind = Kind::kBlock;
        stream_.take();
        statement.text = stream_.expect_name("a block's name").text;
        if (std::count(blocks_.begin(), blocks_.end(), statement.text) > 0)
            stream_.stop(fmt::format("two blocks have the name `{}`", statement.text));
        blocks_.push_back(statement.text);
        statement.is_marked = stream_.skip_name("scoped");
        if (stream_.is_name("required"))
            stream_.stop("a `required` block is for templates that extend others: not supported");
        const int loops = std::exchange(loops_, 0);
        statement.body = tag_body({"endblock"});
        loops_ = loops;
        stream_.skip_name(statement.text);
    }

    void autoescape_tag(Statement& statement) {
        statement.kind = Kind::kScope;
        stream_.take();
        const ExpressionPtr flag = expressions_.expression();
        const bool is_off = flag->kind == Expression::Kind::kConstant &&
                            flag->constant.is(jinja::Kind::kBool) && flag->constant.integral() == 0;
        if (!is_off)
            TokenStream::stop(statement.line,
                              "only `autoescape false` is supported: chats are no "
                              "HTML");
        statement.body = tag_body({"endautoescape"});
    }

    void leave_tag(Statement& statement) {
        statement.kind = stream_.is_name("break") ? Kind::kBreak : Kind::kContinue;
        if (loops_ == 0)
            stream_.stop(fmt::format("`{}` stands outside of a loop", stream_.now().text));
        stream_.take();
    }

    // Refused only where it is reached, as Jinja2 does without a loader of templates.
    void other_template_tag(Statement& statement) {
        statement.kind = Kind::kRefused;
        statement.text = stream_.take().text;
        statement.value = expressions_.expression();
        while (!stream_.is(Type::kBlockEnd) && !stream_.is(Type::kEnd)) stream_.take();
    }

    TokenStream stream_;
    ExpressionParser expressions_;
    std::vector<Signature*> open_signatures_;
    std::vector<std::string> blocks_;
    int loops_ = 0;      // that a `break` here could leave
    int all_loops_ = 0;  // around the place
    bool has_generation_ = false;
};

}  // namespace

Tree parse_template(std::string_view source, const KnownNames& known) {
    Tree tree = StatementParser(tokens_of(source)).run();
    require_known_names(tree, known);
    return tree;
}

}  // namespace dslaunch::text::jinja
