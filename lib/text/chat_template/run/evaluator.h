// Works out a template's expressions, and owns what a rendering makes: scopes and namespaces. The
// statements around them are the interpreter's. One thread per evaluator.
#pragma once

#include "text/chat_template/language/syntax.h"
#include "text/chat_template/objects/runtime.h"
#include "text/chat_template/run/scopes.h"

#include <ctime>
#include <memory>
#include <string_view>
#include <vector>

namespace dslaunch::text::jinja {

class Evaluator : public Runtime {
  public:
    Evaluator(const Limits& limits, const std::tm& now)
        : Runtime(limits), now_(now), scopes_(meter()) {}
    Evaluator(const Evaluator&) = delete;
    Evaluator& operator=(const Evaluator&) = delete;
    // A namespace may hold itself.
    ~Evaluator() override {
        for (const auto& held : namespaces_) held->fields.clear();
    }

    [[nodiscard]] Value call(const Value& callee, Arguments arguments) override;
    [[nodiscard]] Value filter(std::string_view name, const Value& input,
                               Arguments arguments) override;
    [[nodiscard]] bool test(std::string_view name, const Value& input,
                            Arguments arguments) override;
    [[nodiscard]] Value new_namespace() override;
    [[nodiscard]] std::tm now() const override { return now_; }

  protected:
    // One level more of expressions and statements inside each other. Throws Fault when that is too
    // deep.
    class Depth {
      public:
        explicit Depth(Evaluator& own) : own_(own) {
            if (own_.depth_ >= kRunDepthMax)
                throw Fault("macros or loops call each other too deep");
            ++own_.depth_;
        }
        ~Depth() { --own_.depth_; }
        Depth(const Depth&) = delete;
        Depth& operator=(const Depth&) = delete;

      private:
        Evaluator& own_;
    };

    // All throw Fault.
    [[nodiscard]] Value eval(const Expression& expression, Scope* scope);
    // CALLER: a further argument of that name.
    [[nodiscard]] Value eval_call(const Expression& expression, Scope* scope,
                                  const Value* caller = nullptr);
    // What FILTERS, those of a block, make of TEXT.
    [[nodiscard]] Value eval_filters(const Expression& filters, const Value& text, Scope* scope);

    [[nodiscard]] int line() const { return line_; }  // of what was last worked on
    void at_line(int line) { line_ = line; }
    [[nodiscard]] ScopePool& scopes() { return scopes_; }

  private:
    [[nodiscard]] Values all_values(const std::vector<ExpressionPtr>& parts, Scope* scope);
    [[nodiscard]] Arguments eval_arguments(const CallArguments& given, Scope* scope);
    [[nodiscard]] Value eval_dict(const Expression& expression, Scope* scope);
    [[nodiscard]] bool holds(Comparison comparison, const Value& a, const Value& b);
    [[nodiscard]] Value eval_compare(const Expression& expression, Scope* scope);
    [[nodiscard]] Value eval_concat(const Expression& expression, Scope* scope);
    [[nodiscard]] Value eval_item(const Expression& expression, Scope* scope);
    [[nodiscard]] Value eval_filter(const Expression& expression, Scope* scope);

    std::tm now_;
    int depth_ = 0;
    int line_ = 1;
    Value filtered_;  // what the filters of a block work on
    // Shared with the values that refer to them.
    std::vector<std::shared_ptr<Namespace>> namespaces_;
    ScopePool scopes_;
};

}  // namespace dslaunch::text::jinja
