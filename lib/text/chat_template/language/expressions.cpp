#include "text/chat_template/language/expressions.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace dslaunch::text::jinja {
namespace {

using Type = Token::Type;

// The largest number of nested parentheses. Jinja2 passes its code to CPython's parser, which
// accepts no more.
constexpr int kExpressionDepthMax = 200;

constexpr std::pair<std::string_view, Comparison> kComparisons[] = {
    {"==", Comparison::kEqual},  {"!=", Comparison::kNotEqual},
    {"<", Comparison::kLess},    {"<=", Comparison::kLessEqual},
    {">", Comparison::kGreater}, {">=", Comparison::kGreaterEqual},
};
constexpr std::pair<std::string_view, Operator> kProducts[] = {
    {"*", Operator::kMultiply},
    {"/", Operator::kDivide},
    {"//", Operator::kFloorDivide},
    {"%", Operator::kModulo},
};

std::vector<ExpressionPtr> list_of(ExpressionPtr one) {
    std::vector<ExpressionPtr> parts;
    parts.push_back(std::move(one));
    return parts;
}

}  // namespace

Token TemplateTokens::take() {
    Token token = now();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
}

Token TemplateTokens::expect(Token::Type type, std::string_view what) {
    if (!is(type)) stop(fmt::format("expected {1}, found {0}", describe(now()), what));
    return take();
}

void TemplateTokens::expect_operator(std::string_view op) {
    if (!skip_operator(op)) stop(fmt::format("expected `{1}`, found {0}", describe(now()), op));
}

Name TemplateTokens::named(const std::string& text) {
    const auto [found, is_new] = numbers_.emplace(text, int(names_.size()));
    if (is_new) names_.push_back(text);
    return {text, found->second};
}

ExpressionPtr ExpressionParser::make(Kind kind, int line, std::vector<ExpressionPtr> parts,
                                     CallArguments given) {
    auto made = std::make_unique<Expression>();
    made->kind = kind;
    made->line = line;
    made->parts = std::move(parts);
    made->arguments = std::move(given);
    int depth = 0;
    const auto count = [&](const ExpressionPtr& part) {
        if (part != nullptr) depth = std::max(depth, part->depth);
    };
    std::ranges::for_each(made->parts, count);
    std::ranges::for_each(made->arguments.positional, count);
    for (const auto& [name, part] : made->arguments.named) count(part);
    count(made->arguments.more_positional);
    count(made->arguments.more_named);
    made->depth = depth + 1;
    if (made->depth > kExpressionDepthMax)
        TemplateTokens::stop(line, fmt::format("the expression is nested more than {} levels deep",
                                               kExpressionDepthMax));
    return made;
}

ExpressionPtr ExpressionParser::make(Kind kind, int line, ExpressionPtr a, ExpressionPtr b) {
    std::vector<ExpressionPtr> parts = list_of(std::move(a));
    parts.push_back(std::move(b));
    return make(kind, line, std::move(parts));
}

ExpressionPtr ExpressionParser::constant(int line, Value value) {
    ExpressionPtr made = make(Kind::kConstant, line);
    made->constant = std::move(value);
    return made;
}

bool ExpressionParser::at_operator(std::initializer_list<std::string_view> ops) const {
    return std::ranges::any_of(ops, [&](std::string_view op) { return stream_.is_operator(op); });
}

ExpressionPtr ExpressionParser::expression(bool with_choice) {
    const TemplateTokens::Level level(stream_);
    int line = stream_.line();
    ExpressionPtr value = logical(Kind::kOr);
    while (with_choice && stream_.skip_name("if")) {
        std::vector<ExpressionPtr> parts = list_of(logical(Kind::kOr));
        parts.push_back(std::move(value));
        parts.push_back(stream_.skip_name("else") ? expression() : nullptr);
        value = make(Kind::kChoice, line, std::move(parts));
        line = stream_.line();
    }
    return value;
}

// Reads operands joined by `or`, or by `and`.
ExpressionPtr ExpressionParser::logical(Kind kind) {
    const bool is_or = kind == Kind::kOr;
    const auto operand = [&] { return is_or ? logical(Kind::kAnd) : negation(); };
    ExpressionPtr left = operand();
    while (stream_.is_name(is_or ? "or" : "and")) {
        const int line = stream_.take().line;
        left = make(kind, line, std::move(left), operand());
    }
    return left;
}

ExpressionPtr ExpressionParser::negation() {
    if (!stream_.is_name("not")) return comparison();
    const TemplateTokens::Level level(stream_);
    const int line = stream_.take().line;
    return make(Kind::kNot, line, list_of(negation()));
}

bool ExpressionParser::comparison_operator(Comparison& comparison) {
    for (const auto& [text, known] : kComparisons) {
        comparison = known;
        if (stream_.skip_operator(text)) return true;
    }
    comparison = Comparison::kIn;
    if (stream_.skip_name("in")) return true;
    comparison = Comparison::kNotIn;
    if (!stream_.is_name("not") || !stream_.after().is_name("in")) return false;
    stream_.take();
    stream_.take();
    return true;
}

ExpressionPtr ExpressionParser::comparison() {
    const int line = stream_.line();
    std::vector<ExpressionPtr> parts = list_of(sum());
    std::vector<Comparison> comparisons;
    for (Comparison comparison{}; comparison_operator(comparison);) {
        comparisons.push_back(comparison);
        parts.push_back(sum());
    }
    if (comparisons.empty()) return std::move(parts.front());
    ExpressionPtr result = make(Kind::kCompare, line, std::move(parts));
    result->comparisons = std::move(comparisons);
    return result;
}

ExpressionPtr ExpressionParser::sum() {
    ExpressionPtr left = concat();
    while (at_operator({"+", "-"})) {
        const Token op = stream_.take();
        left = make(Kind::kOperator, op.line, std::move(left), concat());
        left->op = op.text == "+" ? Operator::kAdd : Operator::kSubtract;
    }
    return left;
}

ExpressionPtr ExpressionParser::concat() {
    const int line = stream_.line();
    std::vector<ExpressionPtr> parts = list_of(product());
    while (stream_.skip_operator("~")) parts.push_back(product());
    if (parts.size() == 1) return std::move(parts.front());
    return make(Kind::kConcat, line, std::move(parts));
}

ExpressionPtr ExpressionParser::product() {
    ExpressionPtr left = unary(true);
    for (;;) {
        const auto found = std::ranges::find_if(
            kProducts, [&](const auto& row) { return stream_.is_operator(row.first); });
        if (stream_.is_operator("**")) stream_.stop("the operator `**` is not supported");
        if (found == std::end(kProducts)) return left;
        const int line = stream_.take().line;
        left = make(Kind::kOperator, line, std::move(left), unary(true));
        left->op = found->second;
    }
}

ExpressionPtr ExpressionParser::unary(bool with_filters) {
    const TemplateTokens::Level level(stream_);
    if (!at_operator({"-", "+"})) return postfix(primary(), with_filters);
    const Token op = stream_.take();
    const Kind kind = op.text == "-" ? Kind::kNegative : Kind::kPositive;
    return postfix(make(kind, op.line, list_of(unary(false))), with_filters);
}

ExpressionPtr ExpressionParser::named_value() {
    const Token token = stream_.take();
    const auto is = [&](std::string_view small, std::string_view capital) {
        return token.text == small || token.text == capital;
    };
    if (is("true", "True")) return constant(token.line, Value::boolean(true));
    if (is("false", "False")) return constant(token.line, Value::boolean(false));
    if (is("none", "None")) return constant(token.line, Value::none());
    ExpressionPtr value = make(Kind::kName, token.line);
    value->name = stream_.named(token.text);
    see(token.text);
    return value;
}

ExpressionPtr ExpressionParser::primary() {
    const int line = stream_.line();
    if (stream_.is(Type::kName)) return named_value();
    if (stream_.is(Type::kNumber)) return constant(line, stream_.take().number);
    if (stream_.is(Type::kText)) {
        std::string text;
        while (stream_.is(Type::kText)) text += stream_.take().text;
        return constant(line, new_text(nullptr, std::move(text)));
    }
    if (stream_.skip_operator("(")) {
        ExpressionPtr value = tuple(/*with_choice=*/true, /*may_be_empty=*/true);
        stream_.expect_operator(")");
        return value;
    }
    if (at_operator({"[", "{"})) return display(stream_.is_operator("{"));
    stream_.stop(fmt::format("expected an expression, found {}", describe(stream_.now())));
}

ExpressionPtr ExpressionParser::tuple(bool with_choice, bool may_be_empty) {
    const int line = stream_.line();
    std::vector<ExpressionPtr> parts;
    bool is_tuple = false;
    while (!stream_.is(Type::kVariableEnd) && !stream_.is(Type::kBlockEnd) &&
           !stream_.is_operator(")")) {
        parts.push_back(expression(with_choice));
        if (!stream_.skip_operator(",")) break;
        is_tuple = true;
    }
    if (!is_tuple && !parts.empty()) return std::move(parts.front());
    if (!is_tuple && !may_be_empty)
        stream_.stop(fmt::format("expected an expression, found {}", describe(stream_.now())));
    return make(Kind::kTuple, line, std::move(parts));
}

// Reads a list or a dict in brackets.
ExpressionPtr ExpressionParser::display(bool is_dict) {
    const int line = stream_.take().line;
    const char* const end = is_dict ? "}" : "]";
    std::vector<ExpressionPtr> parts;
    while (!stream_.is_operator(end)) {
        if (!parts.empty()) stream_.expect_operator(",");
        if (stream_.is_operator(end)) break;
        parts.push_back(expression());
        if (!is_dict) continue;
        stream_.expect_operator(":");
        parts.push_back(expression());
    }
    stream_.take();
    return make(is_dict ? Kind::kDict : Kind::kList, line, std::move(parts));
}

// Reads what may follow an operand: attributes, subscripts and calls, and, if WITH_FILTERS is true,
// filters and tests.
ExpressionPtr ExpressionParser::postfix(ExpressionPtr of, bool with_filters) {
    for (bool in_filters = false;;) {
        if (stream_.is_operator("(")) {
            const int line = stream_.line();
            CallArguments given = arguments();
            of = make(Kind::kCall, line, list_of(std::move(of)), std::move(given));
        } else if (!in_filters && at_operator({".", "["})) {
            of = subscript(std::move(of));
        } else if (with_filters && stream_.is_operator("|")) {
            of = filters(std::move(of), false);
            in_filters = true;
        } else if (with_filters && stream_.is_name("is")) {
            of = test(std::move(of));
            in_filters = true;
        } else {
            return of;
        }
    }
}

ExpressionPtr ExpressionParser::subscript(ExpressionPtr of) {
    const Token opener = stream_.take();
    if (opener.text == ".") {
        const Token name = stream_.take();
        if (name.type == Type::kName) {
            ExpressionPtr value = make(Kind::kAttribute, opener.line, list_of(std::move(of)));
            value->name.text = name.text;
            return value;
        }
        if (name.type != Type::kNumber || !name.number.is(ValueKind::kInt))
            TemplateTokens::stop(name.line, "expected a name or a number after `.`");
        return make(Kind::kItem, opener.line, std::move(of), constant(name.line, name.number));
    }
    std::vector<ExpressionPtr> indices;
    while (!stream_.is_operator("]")) {
        if (!indices.empty()) stream_.expect_operator(",");
        indices.push_back(index());
    }
    stream_.take();
    ExpressionPtr which = indices.size() == 1 ? std::move(indices.front())
                                              : make(Kind::kTuple, opener.line, std::move(indices));
    return make(Kind::kItem, opener.line, std::move(of), std::move(which));
}

ExpressionPtr ExpressionParser::index() {
    const int line = stream_.line();
    std::vector<ExpressionPtr> parts(3);
    if (!stream_.is_operator(":")) {
        ExpressionPtr single = expression();
        if (!stream_.is_operator(":")) return single;
        parts[0] = std::move(single);
    }
    stream_.take();
    if (!at_operator({":", "]", ","})) parts[1] = expression();
    if (stream_.skip_operator(":") && !at_operator({"]", ","})) parts[2] = expression();
    return make(Kind::kSlice, line, std::move(parts));
}

ExpressionPtr ExpressionParser::filters(ExpressionPtr input, bool first) {
    while (first || stream_.skip_operator("|")) {
        first = false;
        const int line = stream_.line();
        std::string name = stream_.expect_name("a filter's name").text;
        CallArguments given;
        if (stream_.is_operator("(")) given = arguments();
        input = make(Kind::kFilter, line, list_of(std::move(input)), std::move(given));
        input->name.text = std::move(name);
    }
    return input;
}

ExpressionPtr ExpressionParser::test(ExpressionPtr of) {
    const int line = stream_.take().line;
    const bool is_negated = stream_.skip_name("not");
    std::string name = stream_.expect_name("a test's name").text;
    const bool ends = stream_.is_name("else") || stream_.is_name("or") || stream_.is_name("and");
    CallArguments given;
    if (stream_.is_operator("(")) {
        given = arguments();
    } else if (!ends && (stream_.is(Type::kName) || stream_.is(Type::kText) ||
                         stream_.is(Type::kNumber) || at_operator({"[", "{"}))) {
        if (stream_.is_name("is"))
            stream_.stop("two tests with `is` in a row are not supported: use `and`");
        const TemplateTokens::Level level(stream_);
        given.positional.push_back(postfix(primary(), /*with_filters=*/false));
    }
    ExpressionPtr made = make(Kind::kTest, line, list_of(std::move(of)), std::move(given));
    made->name.text = std::move(name);
    return is_negated ? make(Kind::kNot, line, list_of(std::move(made))) : std::move(made);
}

CallArguments ExpressionParser::arguments() {
    CallArguments given;
    stream_.expect_operator("(");
    for (bool is_first = true; !stream_.is_operator(")"); is_first = false) {
        if (!is_first) stream_.expect_operator(",");
        if (stream_.is_operator(")")) break;
        one_argument(given);
    }
    stream_.take();
    return given;
}

void ExpressionParser::one_argument(CallArguments& given) {
    const bool has_more = given.more_positional != nullptr || given.more_named != nullptr;
    bool is_ordered = !has_more;
    if (stream_.skip_operator("*")) {
        given.more_positional = expression();
    } else if (stream_.skip_operator("**")) {
        is_ordered = given.more_named == nullptr;
        given.more_named = expression();
    } else if (stream_.is(Type::kName) && stream_.after().is_operator("=")) {
        is_ordered = given.more_named == nullptr;
        const std::string name = stream_.take().text;
        stream_.take();
        for (const auto& [other, value] : given.named)
            if (other == name) stream_.stop(fmt::format("the argument `{}` is given twice", name));
        given.named.emplace_back(name, expression());
    } else {
        is_ordered = !has_more && given.named.empty();
        given.positional.push_back(expression());
    }
    if (!is_ordered) stream_.stop("the arguments of the call are in the wrong order");
}

}  // namespace dslaunch::text::jinja
