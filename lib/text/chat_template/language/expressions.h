// The parser of expressions, with Jinja2's grammar and order of operators.
#pragma once

#include "text/chat_template/language/syntax.h"
#include "text/chat_template/language/token_stream.h"

#include <functional>
#include <initializer_list>

namespace dslaunch::text::jinja {

// Each reads from the stream and leaves it behind what was read. Throws SyntaxFault.
class ExpressionParser {
  public:
    // SEEN is told each variable's name that is read.
    ExpressionParser(TokenStream& stream, std::function<void(const std::string&)> seen)
        : stream_(stream), seen_(std::move(seen)) {}

    // With or without the form `a if b else c`.
    [[nodiscard]] ExpressionPtr expression(bool with_choice = true);
    struct TupleRules {
        bool with_choice = true;
        bool may_be_empty = false;          // parentheses stand around it
        std::string_view ends_before = {};  // a name that ends it
    };
    // One expression, or a tuple of those between commas.
    [[nodiscard]] ExpressionPtr tuple(const TupleRules& rules);
    [[nodiscard]] ExpressionPtr tuple() { return tuple(TupleRules{}); }
    // The filters from here, on INPUT, which may be nullptr. FIRST: no `|` stands before the first.
    [[nodiscard]] ExpressionPtr filters(ExpressionPtr input, bool first);

  private:
    using Kind = Expression::Kind;

    [[nodiscard]] static ExpressionPtr make(Kind kind, int line, std::vector<ExpressionPtr> parts);
    [[nodiscard]] static ExpressionPtr make(Kind kind, int line, ExpressionPtr a,
                                            ExpressionPtr b = nullptr);
    static void measure(Expression& expression);
    [[nodiscard]] ExpressionPtr disjunction();
    [[nodiscard]] ExpressionPtr conjunction();
    [[nodiscard]] ExpressionPtr negation();
    [[nodiscard]] ExpressionPtr comparison();
    [[nodiscard]] ExpressionPtr sum();
    [[nodiscard]] ExpressionPtr concat();
    [[nodiscard]] ExpressionPtr product();
    [[nodiscard]] ExpressionPtr power();
    [[nodiscard]] ExpressionPtr unary(bool with_filters);
    [[nodiscard]] ExpressionPtr primary();
    [[nodiscard]] ExpressionPtr named();
    [[nodiscard]] ExpressionPtr list();
    [[nodiscard]] ExpressionPtr dict();
    [[nodiscard]] ExpressionPtr postfix(ExpressionPtr of);
    [[nodiscard]] ExpressionPtr subscript(ExpressionPtr of);
    [[nodiscard]] ExpressionPtr index();
    [[nodiscard]] ExpressionPtr filters_and_tests(ExpressionPtr of);
    [[nodiscard]] ExpressionPtr test(ExpressionPtr of);
    [[nodiscard]] ExpressionPtr call(ExpressionPtr of);
    [[nodiscard]] CallArguments arguments();
    void one_argument(CallArguments& arguments);
    [[nodiscard]] std::string dotted_name(std::string_view what);
    [[nodiscard]] bool at_operator(std::initializer_list<std::string_view> ops) const;
    [[nodiscard]] bool comparison_operator(Comparison& comparison);

    TokenStream& stream_;
    std::function<void(const std::string&)> seen_;
};

}  // namespace dslaunch::text::jinja
