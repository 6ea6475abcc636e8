// Checks the code of a TorchScript archive before LibTorch parses it. LibTorch's parser and
// compiler call themselves for each bracket, block and needed definition, without a limit, so that
// deeply nested code overflows the stack. Part of script_archive.h. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>

namespace dslaunch::storage {

// The largest number of open tokens in a statement. A token is open until its expression ends. This
// limits the depth of the expression's tree.
inline constexpr int64_t kOpenTokensMax = 2000;
inline constexpr int64_t kCodeBlocksMax = 100;  // how deep blocks may be nested
// The largest nesting across definitions: the sum of open parts and blocks along a chain in which
// each definition needs the next.
inline constexpr int64_t kCodeDepthMax = 40'000;
// The largest number of list elements in one statement: LibTorch's time grows with the square of
// this number.
inline constexpr int64_t kCodeElementsMax = 200'000;
inline constexpr int64_t kCodeBytesMax = int64_t{16} << 20;  // of all records

// The definitions in the code of one archive, which is added record by record.
class ScriptCode {
  public:
    // PATH is the beginning of every message; it must outlive this object.
    explicit ScriptCode(const std::string& path) : path_(path) {}

    // Checks TEXT, the content of the record NAME ("code/__torch__/models/gpt.py"). Throws
    // Error{kInput}, naming the record and the line, if a limit above is exceeded. Also throws for
    // forms that LibTorch does not write (comments with quotes, continued lines, brackets that do
    // not match), because their depth cannot be determined.
    void add(std::string_view name, std::string_view text);

    // Returns the largest nesting along any chain of definitions in which each needs the next.
    // Throws Error{kInput} if it exceeds kCodeDepthMax. REQUIRES: all records were added.
    [[nodiscard]] int64_t depth() const;

  private:
    friend class CodeScan;
    struct Definition {
        std::set<std::string> needs;  // the full names that its text contains
        int64_t depth = 0;            // its own, including all methods of a class
    };
    // Returns the definition of NAME. If NAME is a method or attribute, returns the definition that
    // contains it. Returns null if there is none.
    [[nodiscard]] const Definition* find(std::string_view name) const;

    const std::string& path_;
    int64_t code_bytes_ = 0;
    std::map<std::string, Definition, std::less<>> definitions_;  // by full name
};

}  // namespace dslaunch::storage
