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

// The tokens of a template with the place of the parser in them. Functions that expect something
// throw LineFault.
class TokenStream {
  public:
    explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

    [[nodiscard]] const Token& now() const { return tokens_[at_]; }
    [[nodiscard]] const Token& after() const {
        return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_];
    }
    [[nodiscard]] bool is(Token::Type type) const { return now().type == type; }
    [[nodiscard]] bool is_name(std::string_view name) const { return now().is_name(name); }
    [[nodiscard]] bool is_operator(std::string_view op) const { return now().is_operator(op); }
    [[nodiscard]] int line() const { return now().line; }

    Token take();
    bool skip_name(std::string_view name) { return is_name(name) && (take(), true); }
    bool skip_operator(std::string_view op) { return is_operator(op) && (take(), true); }
    Token expect(Token::Type type, std::string_view what);
    Token expect_name(std::string_view what) { return expect(Token::Type::kName, what); }
    void expect_operator(std::string_view op);

    [[noreturn]] void stop(const std::string& message) const { stop(line(), message); }
    [[noreturn]] static void stop(int line, const std::string& message) {
        throw LineFault(line, message);
    }

    // Counts one more level while it lives.
    class Level {
      public:
        explicit Level(TokenStream& stream) : stream_(stream) {
            if (++stream_.levels_ > kLevelsMax)
                stream_.stop("expressions or tags stand too deep in each other");
        }
        ~Level() { --stream_.levels_; }
        Level(const Level&) = delete;
        Level& operator=(const Level&) = delete;

      private:
        TokenStream& stream_;
    };

    // Returns the name TEXT with its number, the same for equal ones.
    [[nodiscard]] Name named(const std::string& text);
    [[nodiscard]] std::vector<std::string> take_names() { return std::move(names_); }

  private:
    static constexpr int kLevelsMax = 100;

    std::vector<Token> tokens_;
    size_t at_ = 0;
    int levels_ = 0;
    std::map<std::string, int> numbers_;
    std::vector<std::string> names_;
};

// Each function reads from the stream and leaves it after what was read. Throws LineFault.
class ExpressionParser {
  public:
    explicit ExpressionParser(std::vector<Token> tokens) : stream_(std::move(tokens)) {}
    virtual ~ExpressionParser() = default;

  protected:
    // Gets the name of each variable that is read.
    virtual void see(const std::string& name) = 0;

    // Reads with or without the form `a if b else c`.
    [[nodiscard]] ExpressionPtr expression(bool with_choice = true);
    // Reads one expression, or a tuple of those between commas.
    [[nodiscard]] ExpressionPtr tuple(bool with_choice = true, bool may_be_empty = false);
    // Reads the filters from here, on INPUT, which may be nullptr. FIRST: no `|` stands before the
    // first.
    [[nodiscard]] ExpressionPtr filters(ExpressionPtr input, bool first);

    TokenStream stream_;

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
