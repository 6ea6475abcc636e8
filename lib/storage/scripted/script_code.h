// Checks the code of a TorchScript archive before LibTorch parses it. LibTorch's parser and
// compiler call themselves for each bracket, block and needed definition, without a limit: deep
// code ends the stack. Part of script_archive.h. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>

namespace dslaunch::storage {

// The most parts of an expression that may be open, which bounds how deep its tree is.
inline constexpr int64_t kOpenTokensMax = 2000;
inline constexpr int64_t kCodeBlocksMax = 100;  // blocks inside blocks
// The most open parts and blocks along a chain of definitions, each of which needs the next.
inline constexpr int64_t kCodeDepthMax = 40'000;
// The most elements of lists in one statement: LibTorch's time grows with their square.
inline constexpr int64_t kCodeElementsMax = 200'000;
inline constexpr int64_t kCodeBytesMax = int64_t{16} << 20;  // of all records

class ScriptCode {
  public:
    // PATH begins the messages, and outlives this.
    explicit ScriptCode(const std::string& path) : path_(path) {}

    // Takes the record NAME, "code/__torch__/models/gpt.py". Throws Error{kInput} that names the
    // record and the line over a limit above, and for forms that LibTorch does not write (comments
    // with quotes, continued lines, brackets that do not fit), as their depth cannot be told.
    void add(std::string_view name, std::string_view text);

    // Returns how deep the code nests, through all definitions that need others. Throws
    // Error{kInput} if that is beyond the limit. REQUIRES: all records were added.
    [[nodiscard]] int64_t depth() const;

  private:
    friend class CodeScan;
    struct Definition {
        std::set<std::string> needs;  // the full names that its text holds
        int64_t depth = 0;            // its own, with the depth of methods that call each other
    };
    // Returns the definition of NAME, or of NAME's method or attribute; null: there is none.
    [[nodiscard]] const Definition* find(std::string_view name) const;

    const std::string& path_;
    int64_t code_bytes_ = 0;
    std::map<std::string, Definition, std::less<>> definitions_;  // by full name
};

}  // namespace dslaunch::storage
