// The evaluation of a template's expressions; the interpreter runs the statements around them. One
// thread per evaluator.
#pragma once

#include <ctime>
#include <deque>
#include <utility>
#include <vector>

#include "text/chat_template/functions/native.h"
#include "text/chat_template/language/syntax.h"

namespace dslaunch::text::jinja {

// The variables of a running template, in nested scopes.
struct Scope {
    Scope* parent = nullptr;
    bool is_kept = false;  // a macro can use it, so it exists until the template has run
    std::vector<std::pair<int, Value>> variables;

    // Returns the value of NAME, or nullptr if neither this scope nor a scope around it has it.
    [[nodiscard]] const Value* find(int name) const;
    // Sets the variable NAME in this scope.
    void set(int name, Value value);
    // Prevents the pool from reusing this scope and all scopes around it, even after they are
    // closed.
    void keep();
};

// The scopes of a rendering. METER counts the scopes. The pool reuses closed scopes, except after
// Scope::keep().
class ScopePool {
  public:
    explicit ScopePool(Meter& meter) : meter_(meter) {}
    ScopePool(const ScopePool&) = delete;
    ScopePool& operator=(const ScopePool&) = delete;
    ~ScopePool();

    // Returns an empty scope inside PARENT, which may be nullptr. The pool owns it.
    [[nodiscard]] Scope* open(Scope* parent);
    // Takes back SCOPE, which must be the result of open().
    void close(Scope* scope);

  private:
    Meter& meter_;
    std::deque<Scope> scopes_;
    std::vector<Scope*> free_;
};

// A scope that is open while this object exists.
class OpenScope {
  public:
    OpenScope(ScopePool& pool, Scope* parent) : pool_(pool), scope_(pool.open(parent)) {}
    ~OpenScope() { pool_.close(scope_); }
    OpenScope(const OpenScope&) = delete;
    OpenScope& operator=(const OpenScope&) = delete;
    // Returns the open scope.
    [[nodiscard]] Scope* get() const { return scope_; }

  private:
    ScopePool& pool_;
    Scope* scope_;
};

// The base of the interpreter: it evaluates expressions and owns the state of the rendering.
class ExpressionEvaluator {
  public:
    ExpressionEvaluator(const Limits& limits, const std::tm& now)
        : runtime_(limits, now), scopes_(runtime_.meter()) {}
    ExpressionEvaluator(const ExpressionEvaluator&) = delete;
    ExpressionEvaluator& operator=(const ExpressionEvaluator&) = delete;

  protected:
    // Counts one more level of nested expressions and statements. Throws Fault if there are too
    // many levels.
    class Depth {
      public:
        explicit Depth(ExpressionEvaluator& own) : own_(own) {
            if (own_.depth_ >= kRunDepthMax) throw Fault("macros or loops are nested too deeply");
            ++own_.depth_;
        }
        ~Depth() { --own_.depth_; }
        Depth(const Depth&) = delete;
        Depth& operator=(const Depth&) = delete;

      private:
        ExpressionEvaluator& own_;
    };

    // All throw Fault.
    [[nodiscard]] Value eval(const Expression& expression, Scope* scope);
    // CALLER, if given, is a further argument named `caller`.
    [[nodiscard]] Value eval_call(const Expression& expression, Scope* scope,
                                  const Value* caller = nullptr);
    // Applies FILTERS, which belong to a block, to TEXT. Returns the result.
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
