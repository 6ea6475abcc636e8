// The tokens of a template in the hands of the parsers: the place, the errors, and how deep the
// parsers may call themselves.
#pragma once

#include "text/chat_template/language/lexer.h"

#include <fmt/format.h>

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dslaunch::text::jinja {

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

    Token take() {
        Token token = now();
        if (at_ + 1 < tokens_.size()) ++at_;
        return token;
    }
    bool skip_name(std::string_view name) { return is_name(name) && (take(), true); }
    bool skip_operator(std::string_view op) { return is_operator(op) && (take(), true); }
    Token expect(Token::Type type, std::string_view what) {
        if (!is(type)) stop(fmt::format("{} stands where {} is due", describe(now()), what));
        return take();
    }
    Token expect_name(std::string_view what) { return expect(Token::Type::kName, what); }
    void expect_operator(std::string_view op) {
        if (!skip_operator(op))
            stop(fmt::format("{} stands where `{}` is due", describe(now()), op));
    }

    [[noreturn]] void stop(const std::string& message) const { stop(line(), message); }
    [[noreturn]] static void stop(int line, const std::string& message) {
        throw SyntaxFault(line, message);
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

    // The number of the name TEXT, the same for equal ones.
    [[nodiscard]] int number_of(const std::string& text) {
        const auto [found, is_new] = numbers_.emplace(text, int(names_.size()));
        if (is_new) names_.push_back(text);
        return found->second;
    }
    [[nodiscard]] std::vector<std::string> take_names() { return std::move(names_); }

  private:
    static constexpr int kLevelsMax = 100;

    std::vector<Token> tokens_;
    size_t at_ = 0;
    int levels_ = 0;
    std::map<std::string, int> numbers_;
    std::vector<std::string> names_;
};

}  // namespace dslaunch::text::jinja
