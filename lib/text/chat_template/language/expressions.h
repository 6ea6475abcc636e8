// The parser of expressions, and the tokens that it reads.
#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/chat_template/language/lexer.h"
#include "text/chat_template/language/syntax.h"

namespace dslaunch::text::jinja {

// The tokens of a template, and the parser's position in them. Functions that expect a token throw
// LineFault.
class TemplateTokens {
  public:
    explicit TemplateTokens(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

    // Return the token at the position, and the token after it. At the end, both return the last
    // token.
    [[nodiscard]] const Token& now() const { return tokens_[at_]; }
    [[nodiscard]] const Token& after() const {
        return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_];
    }
    // Return true if the token at the position is of TYPE, or is the given name or operator.
    [[nodiscard]] bool is(Token::Type type) const { return now().type == type; }
    [[nodiscard]] bool is_name(std::string_view name) const { return now().is_name(name); }
    [[nodiscard]] bool is_operator(std::string_view op) const { return now().is_operator(op); }
    // Returns the line of the token at the position, counted from 1.
    [[nodiscard]] int line() const { return now().line; }

    // Returns the token at the position, and moves past it; the position stays at the last token.
    Token take();
    // Move past the given name or operator. Return false if something else is at the position.
    bool skip_name(std::string_view name) { return is_name(name) && (take(), true); }
    bool skip_operator(std::string_view op) { return is_operator(op) && (take(), true); }
    // Move past the expected token, and return it. WHAT describes it in the message of the error.
    Token expect(Token::Type type, std::string_view what);
    Token expect_name(std::string_view what) { return expect(Token::Type::kName, what); }
    void expect_operator(std::string_view op);

    // Throw LineFault, at LINE or at the position's line.
    [[noreturn]] void stop(const std::string& message) const { stop(line(), message); }
    [[noreturn]] static void stop(int line, const std::string& message) {
        throw LineFault(line, message);
    }

    // One more level of nesting, counted while this object exists.
    class Level {
      public:
        explicit Level(TemplateTokens& stream) : stream_(stream) {
            if (++stream_.levels_ > kLevelsMax)
                stream_.stop("expressions or tags are nested too deeply");
        }
        ~Level() { --stream_.levels_; }
        Level(const Level&) = delete;
        Level& operator=(const Level&) = delete;

      private:
        TemplateTokens& stream_;
    };

    // Returns the name TEXT with its number; equal names have the same number.
    [[nodiscard]] Name named(const std::string& text);
    // Returns all names, each at the index of its number. Called once, at the end.
    [[nodiscard]] std::vector<std::string> take_names() { return std::move(names_); }

  private:
    static constexpr int kLevelsMax = 100;

    std::vector<Token> tokens_;
    size_t at_ = 0;
    int levels_ = 0;
    std::map<std::string, int> numbers_;
    std::vector<std::string> names_;
};

// The parser of expressions. Each function reads tokens from the position on, and moves past them.
// All throw LineFault.
class ExpressionParser {
  public:
    explicit ExpressionParser(std::vector<Token> tokens) : stream_(std::move(tokens)) {}
    virtual ~ExpressionParser() = default;

  protected:
    // Receives the name of each variable that is read.
    virtual void see(const std::string& name) = 0;

    // Reads an expression; if WITH_CHOICE is true, it may have the form `a if b else c`.
    [[nodiscard]] ExpressionPtr expression(bool with_choice = true);
    // Reads one expression, or a tuple of expressions separated by commas.
    [[nodiscard]] ExpressionPtr tuple(bool with_choice = true, bool may_be_empty = false);
    // Reads the filters that follow and applies them to INPUT, which may be nullptr. If FIRST is
    // true, there is no `|` before the first filter.
    [[nodiscard]] ExpressionPtr filters(ExpressionPtr input, bool first);

    TemplateTokens stream_;

  private:
    using Kind = Expression::Kind;

    [[nodiscard]] ExpressionPtr make(Kind kind, int line, std::vector<ExpressionPtr> parts = {},
                                     CallArguments arguments = {});
    [[nodiscard]] ExpressionPtr make(Kind kind, int line, ExpressionPtr a, ExpressionPtr b);
    [[nodiscard]] ExpressionPtr constant(int line, Value value);
    [[nodiscard]] bool at_operator(std::initializer_list<std::string_view> ops) const;
    [[nodiscard]] ExpressionPtr logical(Kind kind);
    [[nodiscard]] ExpressionPtr negation();
    [[nodiscard]] ExpressionPtr comparison();
    [[nodiscard]] bool comparison_operator(Comparison& comparison);
    [[nodiscard]] ExpressionPtr sum();
    [[nodiscard]] ExpressionPtr concat();
    [[nodiscard]] ExpressionPtr product();
    [[nodiscard]] ExpressionPtr unary(bool with_filters);
    [[nodiscard]] ExpressionPtr primary();
    [[nodiscard]] ExpressionPtr named_value();
    [[nodiscard]] ExpressionPtr display(bool is_dict);
    [[nodiscard]] ExpressionPtr postfix(ExpressionPtr of, bool with_filters);
    [[nodiscard]] ExpressionPtr subscript(ExpressionPtr of);
    [[nodiscard]] ExpressionPtr index();
    [[nodiscard]] ExpressionPtr test(ExpressionPtr of);
    [[nodiscard]] CallArguments arguments();
    void one_argument(CallArguments& given);
};

}  // namespace dslaunch::text::jinja
