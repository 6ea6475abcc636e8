#include "text/chat_template/language/expressions.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace dslaunch::text::jinja {
namespace {

using Type = Token::Type;

// The parser of CPython, to which Jinja2 hands its code, takes no more parentheses.
constexpr int kExpressionDepthMax = 200;

struct ComparisonText {
    std::string_view text;
    Comparison comparison;
};
constexpr ComparisonText kComparisons[] = {
    {"==", Comparison::kEqual},  {"!=", Comparison::kNotEqual},
    {"<", Comparison::kLess},    {"<=", Comparison::kLessEqual},
    {">", Comparison::kGreater}, {">=", Comparison::kGreaterEqual},
};

Operator operator_of(std::string_view text) {
    if (text == "+") return Operator::kAdd;
    if (text == "-") return Operator::kSubtract;
    if (text == "*") return Operator::kMultiply;
    if (text == "/") return Operator::kDivide;
    if (text == "//") return Operator::kFloorDivide;
    return text == "%" ? Operator::kModulo : Operator::kPower;
}

}  // namespace

void ExpressionParser::measure(Expression& expression) {
    int depth = 0;
    const auto count = [&](const ExpressionPtr& part) {
        if (part != nullptr) depth = std::max(depth, part->depth);
    };
    for (const ExpressionPtr& part : expression.parts) count(part);
    for (const ExpressionPtr& part : expression.arguments.positional) count(part);
    for (const auto& [name, part] : expression.arguments.named) count(part);
    count(expression.arguments.more_positional);
    count(expression.arguments.more_named);
    expression.depth = depth + 1;
    if (expression.depth > kExpressionDepthMax) {
        TokenStream::stop(expression.line, fmt::format("the expression has more than {} levels",
                                                       kExpressionDepthMax));
    }
}

ExpressionPtr ExpressionParser::make(Kind kind, int line, std::vector<ExpressionPtr> parts) {
    auto expression = std::make_unique<Expression>();
    expression->kind = kind;
    expression->line = line;
    expression->parts = std::move(parts);
    measure(*expression);
    return expression;
}

ExpressionPtr ExpressionParser::make(Kind kind, int line, ExpressionPtr a, ExpressionPtr b) {
    std::vector<ExpressionPtr> parts;
    parts.push_back(std::move(a));
    if (b != nullptr) parts.push_back(std::move(b));
    return make(kind, line, std::move(parts));
}

bool ExpressionParser::at_operator(std::initializer_list<std::string_view> ops) const {
    return std::any_of(ops.begin(), ops.end(),
                       [&](std::string_view op) { return stream_.is_operator(op); });
}

ExpressionPtr ExpressionParser::expression(bool with_choice) {
    const TokenStream::Level level(stream_);
    int line = stream_.line();
    ExpressionPtr value = disjunction();
    while (with_choice && stream_.skip_name("if")) {
        std::vector<ExpressionPtr> parts;
        parts.push_back(disjunction());
        parts.push_back(std::move(value));
        parts.push_back(stream_.skip_name("else") ? expression() : nullptr);
        value = make(Kind::kChoice, line, std::move(parts));
        line = stream_.line();
    }
    return value;
}

ExpressionPtr ExpressionParser::disjunction() {
    ExpressionPtr left = conjunction();
    while (stream_.is_name("or")) {
        const int line = stream_.take().line;
        left = make(Kind::kOr, line, std::move(left), conjunction());
    }
    return left;
}

ExpressionPtr ExpressionParser::conjunction() {
    ExpressionPtr left = negation();
    while (stream_.is_name("and")) {
        const int line = stream_.take().line;
        left = make(Kind::kAnd, line, std::move(left), negation());
    }
    return left;
}

ExpressionPtr ExpressionParser::negation() {
    if (!stream_.is_name("not")) return comparison();
    const TokenStream::Level level(stream_);
    const int line = stream_.take().line;
    return make(Kind::kNot, line, negation());
}

bool ExpressionParser::comparison_operator(Comparison& comparison) {
    for (const ComparisonText& row : kComparisons) {
        if (!stream_.skip_operator(row.text)) continue;
        comparison = row.comparison;
        return true;
    }
    if (stream_.skip_name("in")) {
        comparison = Comparison::kIn;
        return true;
    }
    if (!stream_.is_name("not") || !stream_.after().is_name("in")) return false;
    stream_.take();
    stream_.take();
    comparison = Comparison::kNotIn;
    return true;
}

ExpressionPtr ExpressionParser::comparison() {
    const int line = stream_.line();
    ExpressionPtr first = sum();
    std::vector<ExpressionPtr> parts;
    std::vector<Comparison> comparisons;
    for (Comparison comparison{}; comparison_operator(comparison);) {
        comparisons.push_back(comparison);
        if (parts.empty()) parts.push_back(std::move(first));
        parts.push_back(sum());
    }
    if (comparisons.empty()) return first;
    ExpressionPtr result = make(Kind::kCompare, line, std::move(parts));
    result->comparisons = std::move(comparisons);
    return result;
}

ExpressionPtr ExpressionParser::sum() {
    ExpressionPtr left = concat();
    while (at_operator({"+", "-"})) {
        const Token op = stream_.take();
        left = make(Kind::kOperator, op.line, std::move(left), concat());
        left->op = operator_of(op.text);
    }
    return left;
}

ExpressionPtr ExpressionParser::concat() {
    const int line = stream_.line();
    ExpressionPtr first = product();
    if (!stream_.is_operator("~")) return first;
    std::vector<ExpressionPtr> parts;
    parts.push_back(std::move(first));
    while (stream_.skip_operator("~")) parts.push_back(product());
    return make(Kind::kConcat, line, std::move(parts));
}

ExpressionPtr ExpressionParser::product() {
    ExpressionPtr left = power();
    while (at_operator({"*", "/", "//", "%"})) {
        const Token op = stream_.take();
        left = make(Kind::kOperator, op.line, std::move(left), power());
        left->op = operator_of(op.text);
    }
    return left;
}

ExpressionPtr ExpressionParser::power() {
    ExpressionPtr left = unary(true);
    while (stream_.is_operator("**")) {
        const int line = stream_.take().line;
        left = make(Kind::kOperator, line, std::move(left), unary(true));
        left->op = Operator::kPower;
    }
    return left;
}

ExpressionPtr ExpressionParser::unary(bool with_filters) {
    const TokenStream::Level level(stream_);
    ExpressionPtr value;
    if (at_operator({"-", "+"})) {
        const Token op = stream_.take();
        value = make(op.text == "-" ? Kind::kNegative : Kind::kPositive, op.line, unary(false));
    } else {
        value = primary();
    }
    value = postfix(std::move(value));
    return with_filters ? filters_and_tests(std::move(value)) : std::move(value);
}

ExpressionPtr ExpressionParser::named() {
    const Token token = stream_.take();
    ExpressionPtr value = make(Kind::kConstant, token.line, std::vector<ExpressionPtr>{});
    if (token.text == "true" || token.text == "True") {
        value->constant = Value::boolean(true);
    } else if (token.text == "false" || token.text == "False") {
        value->constant = Value::boolean(false);
    } else if (token.text == "none" || token.text == "None") {
        value->constant = Value::none();
    } else {
        value->kind = Kind::kName;
        value->name = {token.text, stream_.number_of(token.text)};
        seen_(token.text);
    }
    return value;
}

ExpressionPtr ExpressionParser::primary() {
    const int line = stream_.line();
    switch (stream_.now().type) {
        case Type::kName:
            return named();
        case Type::kText: {
            std::string text;
            while (stream_.is(Type::kText)) text += stream_.take().text;
            ExpressionPtr value = make(Kind::kConstant, line, std::vector<ExpressionPtr>{});
            value->constant = new_text(nullptr, std::move(text));
            return value;
        }
        case Type::kNumber: {
            ExpressionPtr value = make(Kind::kConstant, line, std::vector<ExpressionPtr>{});
            value->constant = stream_.take().number;
            return value;
        }
        default:
            break;
    }
    if (stream_.skip_operator("(")) {
        TupleRules rules;
        rules.may_be_empty = true;
        ExpressionPtr value = tuple(rules);
        stream_.expect_operator(")");
        return value;
    }
    if (stream_.is_operator("[")) return list();
    if (stream_.is_operator("{")) return dict();
    stream_.stop(fmt::format("{} stands where an expression is due", describe(stream_.now())));
}

ExpressionPtr ExpressionParser::tuple(const TupleRules& rules) {
    const int line = stream_.line();
    const auto at_end = [&] {
        return stream_.is(Type::kVariableEnd) || stream_.is(Type::kBlockEnd) ||
               stream_.is_operator(")") ||
               (!rules.ends_before.empty() && stream_.is_name(rules.ends_before));
    };
    std::vector<ExpressionPtr> parts;
    bool is_tuple = false;
    while (!at_end()) {
        parts.push_back(expression(rules.with_choice));
        if (!stream_.is_operator(",")) break;
        is_tuple = true;
        stream_.take();
    }
    if (!is_tuple && !parts.empty()) return std::move(parts.front());
    if (!is_tuple && !rules.may_be_empty)
        stream_.stop(fmt::format("{} stands where an expression is due", describe(stream_.now())));
    return make(Kind::kTuple, line, std::move(parts));
}

ExpressionPtr ExpressionParser::list() {
    const int line = stream_.take().line;
    std::vector<ExpressionPtr> parts;
    while (!stream_.is_operator("]")) {
        if (!parts.empty()) stream_.expect_operator(",");
        if (stream_.is_operator("]")) break;
        parts.push_back(expression());
    }
    stream_.expect_operator("]");
    return make(Kind::kList, line, std::move(parts));
}

ExpressionPtr ExpressionParser::dict() {
    const int line = stream_.take().line;
    std::vector<ExpressionPtr> parts;
    while (!stream_.is_operator("}")) {
        if (!parts.empty()) stream_.expect_operator(",");
        if (stream_.is_operator("}")) break;
        parts.push_back(expression());
        stream_.expect_operator(":");
        parts.push_back(expression());
    }
    stream_.expect_operator("}");
    return make(Kind::kDict, line, std::move(parts));
}

ExpressionPtr ExpressionParser::postfix(ExpressionPtr of) {
    for (;;) {
        if (at_operator({".", "["})) {
            of = subscript(std::move(of));
        } else if (stream_.is_operator("(")) {
            of = call(std::move(of));
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
            ExpressionPtr value = make(Kind::kAttribute, opener.line, std::move(of));
            value->name.text = name.text;
            return value;
        }
        if (name.type != Type::kNumber || !name.number.is(jinja::Kind::kInt))
            TokenStream::stop(name.line, "a name or a number is due behind `.`");
        ExpressionPtr number = make(Kind::kConstant, name.line, std::vector<ExpressionPtr>{});
        number->constant = name.number;
        return make(Kind::kItem, opener.line, std::move(of), std::move(number));
    }
    std::vector<ExpressionPtr> indices;
    while (!stream_.is_operator("]")) {
        if (!indices.empty()) stream_.expect_operator(",");
        indices.push_back(index());
    }
    stream_.expect_operator("]");
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

ExpressionPtr ExpressionParser::filters_and_tests(ExpressionPtr of) {
    for (;;) {
        if (stream_.is_operator("|")) {
            of = filters(std::move(of), false);
        } else if (stream_.is_name("is")) {
            of = test(std::move(of));
        } else if (stream_.is_operator("(")) {
            of = call(std::move(of));
        } else {
            return of;
        }
    }
}

std::string ExpressionParser::dotted_name(std::string_view what) {
    std::string name = stream_.expect_name(what).text;
    while (stream_.skip_operator(".")) name += "." + stream_.expect_name(what).text;
    return name;
}

ExpressionPtr ExpressionParser::filters(ExpressionPtr input, bool first) {
    while (first || stream_.is_operator("|")) {
        if (!first) stream_.take();
        first = false;
        const int line = stream_.line();
        std::string name = dotted_name("a filter's name");
        CallArguments given;
        if (stream_.is_operator("(")) given = arguments();
        auto filter = std::make_unique<Expression>();
        filter->kind = Kind::kFilter;
        filter->line = line;
        filter->name.text = std::move(name);
        filter->parts.push_back(std::move(input));
        filter->arguments = std::move(given);
        measure(*filter);
        input = std::move(filter);
    }
    return input;
}

ExpressionPtr ExpressionParser::test(ExpressionPtr of) {
    const int line = stream_.take().line;
    const bool is_negated = stream_.skip_name("not");
    auto test = std::make_unique<Expression>();
    test->kind = Kind::kTest;
    test->line = line;
    test->name.text = dotted_name("a test's name");
    test->parts.push_back(std::move(of));
    const bool ends = stream_.is_name("else") || stream_.is_name("or") || stream_.is_name("and");
    if (stream_.is_operator("(")) {
        test->arguments = arguments();
    } else if (!ends && (stream_.is(Type::kName) || stream_.is(Type::kText) ||
                         stream_.is(Type::kNumber) || at_operator({"[", "{"}))) {
        if (stream_.is_name("is")) stream_.stop("two tests with `is` in a row: use `and`");
        const TokenStream::Level level(stream_);
        test->arguments.positional.push_back(postfix(primary()));
    }
    measure(*test);
    return is_negated ? make(Kind::kNot, line, std::move(test)) : std::move(test);
}

ExpressionPtr ExpressionParser::call(ExpressionPtr of) {
    const int line = stream_.line();
    CallArguments given = arguments();
    auto call = std::make_unique<Expression>();
    call->kind = Kind::kCall;
    call->line = line;
    call->parts.push_back(std::move(of));
    call->arguments = std::move(given);
    measure(*call);
    return call;
}

CallArguments ExpressionParser::arguments() {
    CallArguments given;
    stream_.expect_operator("(");
    bool is_first = true;
    while (!stream_.is_operator(")")) {
        if (!is_first) {
            stream_.expect_operator(",");
            if (stream_.is_operator(")")) break;
        }
        is_first = false;
        one_argument(given);
    }
    stream_.expect_operator(")");
    return given;
}

void ExpressionParser::one_argument(CallArguments& given) {
    const auto ensure = [&](bool may) {
        if (!may) stream_.stop("the arguments of the call stand in an order that cannot be");
    };
    if (stream_.is_operator("*")) {
        ensure(given.more_positional == nullptr && given.more_named == nullptr);
        stream_.take();
        given.more_positional = expression();
    } else if (stream_.is_operator("**")) {
        ensure(given.more_named == nullptr);
        stream_.take();
        given.more_named = expression();
    } else if (stream_.is(Type::kName) && stream_.after().is_operator("=")) {
        ensure(given.more_named == nullptr);
        const std::string name = stream_.take().text;
        stream_.take();
        for (const auto& [other, value] : given.named)
            if (other == name) stream_.stop(fmt::format("the argument `{}` is given twice", name));
        given.named.emplace_back(name, expression());
    } else {
        ensure(given.more_positional == nullptr && given.more_named == nullptr &&
               given.named.empty());
        given.positional.push_back(expression());
    }
}

}  // namespace dslaunch::text::jinja
