// A template as a tree, which the parser makes and the interpreter runs. Value types without
// behaviour; a tree never changes after it is parsed, so several threads may run it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/chat_template/values/arithmetic.h"
#include "text/chat_template/values/values.h"

namespace dslaunch::text::jinja {

// An error in a template, with its line.
class LineFault : public Fault {
  public:
    LineFault(int line, const std::string& message) : Fault(message), line_(line) {}
    // Returns the line of the template, counted from 1.
    [[nodiscard]] int line() const { return line_; }

  private:
    int line_;
};

struct Expression;
struct Statement;
using ExpressionPtr = std::unique_ptr<Expression>;
using Body = std::vector<Statement>;

// A variable's name and its number; equal names in a template have the same number.
struct Name {
    std::string text;
    int number = -1;
};

// The arguments of a call, filter or test.
struct CallArguments {
    std::vector<ExpressionPtr> positional;
    std::vector<std::pair<std::string, ExpressionPtr>> named;
    ExpressionPtr more_positional;  // *expression
    ExpressionPtr more_named;       // **expression
};

// The operators that a comparison may chain, as in `a < b <= c`.
enum class Comparison : uint8_t {
    kEqual,
    kNotEqual,
    kLess,
    kLessEqual,
    kGreater,
    kGreaterEqual,
    kIn,
    kNotIn,
};

// A node of an expression's tree. Its kind says which of its members are used.
struct Expression {
    // The forms of expressions.
    enum class Kind : uint8_t {
        kConstant,
        kName,
        kList,
        kTuple,
        kDict,  // parts: key, value, key, …
        kNot,
        kNegative,
        kPositive,
        kAnd,
        kOr,
        kOperator,   // parts: left, right
        kCompare,    // parts: first, and one more for each comparison
        kConcat,     // ~
        kChoice,     // parts: condition, value, value otherwise or nullptr
        kFilter,     // parts: input or nullptr for a filter block; name; arguments
        kTest,       // parts: input; name; arguments
        kCall,       // parts: the callee; arguments
        kAttribute,  // parts: the owner; name
        kItem,       // parts: the owner, index
        kSlice,      // an index; parts: start, stop, step, each may be nullptr
    };
    Kind kind = Kind::kConstant;
    Operator op = Operator::kAdd;
    int line = 1;
    int depth = 1;  // levels of nested expressions
    Value constant;
    Name name;
    std::vector<Comparison> comparisons;
    std::vector<ExpressionPtr> parts;
    CallArguments arguments;
};

// The destination of a value in `set`, `for` and `with`.
struct Target {
    // The forms of targets.
    enum class Kind : uint8_t { kName, kField, kTuple };
    Kind kind = Kind::kName;
    Name name;
    std::string field;  // kField: name.field
    std::vector<Target> parts;
};

// A parameter of a macro. If it has no fallback (nullptr) and is not given, it is undefined.
struct Parameter {
    Name name;
    ExpressionPtr fallback;
};

// The arguments of a macro, or of the body of a `call` block.
struct Signature {
    std::string name;
    std::vector<Parameter> parameters;
    bool takes_caller = false;  // the body uses `caller`, which is not a parameter
};

// A tag with everything up to its end tag, or the text between tags. Its kind says which of its
// members are used.
struct Statement {
    // The forms of statements.
    enum class Kind : uint8_t {
        kData,         // text
        kPrint,        // value
        kIf,           // value, body, branches, otherwise
        kFor,          // target, value, test, body, otherwise
        kSet,          // target, value
        kSetBlock,     // target, body, value (a filter) or nullptr
        kMacro,        // signature, target, body
        kCallBlock,    // value (a call), signature, body
        kFilterBlock,  // value, body
        kWith,         // assignments, body
        kGeneration,   // body
        kBreak,
        kContinue,
        kRefused,  // text: the tag's name; such a tag refers to another template
    };
    Kind kind = Kind::kData;
    int line = 1;
    std::string text;
    ExpressionPtr value;
    ExpressionPtr test;
    Target target;
    Signature signature;
    std::vector<std::pair<Target, ExpressionPtr>> assignments;
    Body body;
    Body branches;  // the `elif` branches, each with value and body
    Body otherwise;
};

// A parsed template.
struct Tree {
    Body body;
    std::vector<std::string> names;  // indexed by their number
    bool has_generation = false;     // it contains a `{% generation %}`
};

// Parses the template SOURCE with Jinja2's grammar and operator precedence, but without `**`,
// recursive loops, and tags for other templates. Throws LineFault for a mistake, and for parts of
// Jinja2 that are not supported. REQUIRES: SOURCE is valid UTF-8.
[[nodiscard]] Tree parse_template(std::string_view source);

}  // namespace dslaunch::text::jinja
