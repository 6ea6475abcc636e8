// Works out a template's expressions. The statements around them are the interpreter's. One thread
// per evaluator.
#pragma once

#include <ctime>
#include <deque>
#include <utility>
#include <vector>

#include "text/chat_template/functions/native.h"
#include "text/chat_template/language/syntax.h"

namespace dslaunch::text::jinja {

// The variables of a running template: scopes inside each other.
struct Scope {
    Scope* parent = nullptr;
    bool is_kept = false;  // a macro sees it: it lives until the template has run
    std::vector<std::pair<int, Value>> variables;

    // Returns nullptr if the name is neither here nor outside.
    [[nodiscard]] const Value* find(int name) const;
    void set(int name, Value value);
    // Keeps this scope and all around it.
    void keep();
};

class ScopePool {
  public:
    explicit ScopePool(Meter& meter) : meter_(meter) {}
    ScopePool(const ScopePool&) = delete;
    ScopePool& operator=(const ScopePool&) = delete;
    ~ScopePool();

    [[nodiscard]] Scope* open(Scope* parent);
    void close(Scope* scope);

  private:
    Meter& meter_;
    std::deque<Scope> scopes_;
    std::vector<Scope*> free_;
};

// A scope for as long as it lives.
class OpenScope {
  public:
    OpenScope(ScopePool& pool, Scope* parent) : pool_(pool), scope_(pool.open(parent)) {}
    ~OpenScope() { pool_.close(scope_); }
    OpenScope(const OpenScope&) = delete;
    OpenScope& operator=(const OpenScope&) = delete;
    [[nodiscard]] Scope* get() const { return scope_; }

  private:
    ScopePool& pool_;
    Scope* scope_;
};

class Evaluator {
  public:
    Evaluator(const Limits& limits, const std::tm& now)
        : runtime_(limits, now), scopes_(runtime_.meter()) {}
    Evaluator(const Evaluator&) = delete;
    Evaluator& operator=(const Evaluator&) = delete;

  protected:
    // Counts one level more of expressions and statements inside each other. Throws Fault when that
    // is too deep.
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
    // Returns the result of FILTERS, which belong to a block, on TEXT.
    [[nodiscard]] Value eval_filters(const Expression& filters, const Value& text, Scope* scope);

    [[nodiscard]] int line() const { return line_; }  // of the last expression
    void at_line(int line) { line_ = line; }
    [[nodiscard]] Meter& meter() { return runtime_.meter(); }
    [[nodiscard]] ScopePool& scopes() { return scopes_; }

  private:
    [[nodiscard]] Values all_values(const std::vector<ExpressionPtr>& parts, Scope* scope);
    [[nodiscard]] Arguments eval_arguments(const CallArguments& given, Scope* scope);
    [[nodiscard]] Value eval_dict(const Expression& expression, Scope* scope);
    [[nodiscard]] bool holds(Comparison comparison, const Value& a, const Value& b);
    [[nodiscard]] Value eval_compare(const Expression& expression, Scope* scope);
    [[nodiscard]] Value eval_operator(const Expression& expression, Scope* scope);
    [[nodiscard]] Value eval_item(const Expression& expression, Scope* scope);
    [[nodiscard]] Value eval_filter(const Expression& expression, Scope* scope);

    Runtime runtime_;
    int depth_ = 0;
    int line_ = 1;
    Value filtered_;  // the input of the filters of a block
    ScopePool scopes_;
};

}  // namespace dslaunch::text::jinja
