// Runs a template's tree: what it prints. tree and values -> [text]. One thread per interpreter;
// several may run the same tree.
#pragma once

#include "text/chat_template/language/syntax.h"
#include "text/chat_template/objects/runtime.h"

#include <ctime>
#include <string>
#include <utility>
#include <vector>

namespace dslaunch::text::jinja {

// An error while a template runs, with the line of the template.
class RunFault : public Fault {
  public:
    RunFault(int line, const std::string& message) : Fault(message), line_(line) {}
    [[nodiscard]] int line() const { return line_; }

  private:
    int line_;
};

// What a loop printed for one of the messages.
struct PrintedTurn {
    const void* message = nullptr;  // its Dict
    size_t begin_bytes = 0, end_bytes = 0;
};

struct Printed {
    std::string text;
    // For each element of the variable `messages` that is a dict, what loops over them, or over
    // their numbers, printed where its place in the text is known; inner loops before outer ones.
    std::vector<PrintedTurn> turns;
    // What stands in `{% generation %}`: bytes of the text, begin and end.
    std::vector<std::pair<size_t, size_t>> generated;
    // A `{% generation %}` stood where its place in the text cannot be known: in a macro, or in
    // what a tag keeps or changes.
    bool has_lost_generation = false;
};

// What TREE prints with the variables VALUES. Throws RunFault.
[[nodiscard]] Printed run_template(const Tree& tree,
                                   const std::vector<std::pair<std::string, Value>>& values,
                                   const Limits& limits, const std::tm& now);

}  // namespace dslaunch::text::jinja
