#include "text/chat_template/language/known_names.h"

#include "text/chat_template/language/syntax_fault.h"

#include <fmt/format.h>

namespace dslaunch::text::jinja {
namespace {

class NameCheck {
  public:
    explicit NameCheck(const KnownNames& known) : known_(known) {}

    // IS_SOFT: an `if` decides whether it is reached.
    void body(const Body& body, bool is_soft) const {
        for (const Statement& statement : body) one(statement, is_soft);
    }

  private:
    void one(const Statement& statement, bool is_soft) const {
        using Kind = Statement::Kind;
        const bool inside = statement.kind == Kind::kIf;
        expression(statement.value, is_soft || inside);
        expression(statement.test, false);
        for (const Parameter& parameter : statement.signature.parameters)
            expression(parameter.fallback, false);
        for (const auto& [target, value] : statement.assignments) expression(value, false);
        body(statement.body, inside);
        body(statement.branches, inside);
        body(statement.otherwise, inside);
    }

    void expression(const ExpressionPtr& checked, bool is_soft) const {
        if (checked == nullptr) return;
        using Kind = Expression::Kind;
        const std::string& name = checked->name.text;
        if (!is_soft && checked->kind == Kind::kFilter && !known_.is_filter(name))
            throw SyntaxFault(checked->line, fmt::format("there is no filter `{}`", name));
        if (!is_soft && checked->kind == Kind::kTest && !known_.is_test(name))
            throw SyntaxFault(checked->line, fmt::format("there is no test `{}`", name));
        const bool inside = is_soft || checked->kind == Kind::kChoice;
        for (const ExpressionPtr& part : checked->parts) expression(part, inside);
        for (const ExpressionPtr& part : checked->arguments.positional) expression(part, inside);
        for (const auto& [argument, part] : checked->arguments.named) expression(part, inside);
        expression(checked->arguments.more_positional, inside);
        expression(checked->arguments.more_named, inside);
    }

    const KnownNames& known_;
};

}  // namespace

void require_known_names(const Tree& tree, const KnownNames& known) {
    NameCheck(known).body(tree.body, false);
}

}  // namespace dslaunch::text::jinja
