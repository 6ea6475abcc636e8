// The variables of a running template: scopes inside each other. A scope that a macro may still see
// lives until the template has run.
#pragma once

#include "text/chat_template/values/value.h"

#include <deque>
#include <utility>
#include <vector>

namespace dslaunch::text::jinja {

struct Scope {
    Scope* parent = nullptr;
    bool is_kept = false;  // a macro sees it
    std::vector<std::pair<int, Value>> variables;

    // nullptr: neither here nor outside.
    [[nodiscard]] const Value* find(int name) const {
        for (const Scope* scope = this; scope != nullptr; scope = scope->parent)
            for (const auto& [number, value] : scope->variables)
                if (number == name) return &value;
        return nullptr;
    }
    void set(int name, Value value) {
        for (auto& [number, held] : variables) {
            if (number != name) continue;
            held = std::move(value);
            return;
        }
        variables.emplace_back(name, std::move(value));
    }
    // A macro sees this scope and all around it.
    void keep() {
        for (Scope* scope = this; scope != nullptr && !scope->is_kept; scope = scope->parent)
            scope->is_kept = true;
    }
};

class ScopePool {
  public:
    explicit ScopePool(Meter& meter) : meter_(meter) {}
    ScopePool(const ScopePool&) = delete;
    ScopePool& operator=(const ScopePool&) = delete;
    ~ScopePool() {
        for (size_t i = 0; i < scopes_.size(); ++i) meter_.release(kScopeBytes);
    }

    [[nodiscard]] Scope* open(Scope* parent) {
        if (free_.empty()) {
            meter_.hold(kScopeBytes);
            scopes_.emplace_back();
            free_.push_back(&scopes_.back());
        }
        Scope* scope = free_.back();
        free_.pop_back();
        scope->parent = parent;
        return scope;
    }
    void close(Scope* scope) {
        if (scope->is_kept) return;
        scope->variables.clear();
        free_.push_back(scope);
    }

  private:
    static constexpr size_t kScopeBytes = 256;

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

}  // namespace dslaunch::text::jinja
