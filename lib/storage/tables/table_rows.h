// The rows of a table, each as a line of JSON with the same content. The implementation is a plugin
// (lib/storage/parquet_plugin, libdsl_parquet.so), opened only if a table is read, since some
// machines lack Arrow. No type of Arrow appears here. Data path: .parquet -> [here] -> readers of
// lines of JSON. Blocks on the disk; one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::storage {

struct TableRow {
    std::string json;    // an object, without newline; bytes of texts are as they lie in the table
    std::string reason;  // why the row has none; empty: it has
};

class TableRows {
  public:
    virtual ~TableRows() = default;

    // Returns some more rows in their order; none at the end. Holds about kTableBytesOfBlock at
    // once, however large the file and its row groups are. Throws Error{kInput} that names the file
    // if it is damaged.
    [[nodiscard]] virtual std::vector<TableRow> next() = 0;
};

constexpr int64_t kTableBytesOfBlock = int64_t{8} << 20;
constexpr int64_t kTableRowsOfBlock = 512;

// The plugin's data, which it exports as `dsl_parquet_plugin`.
inline constexpr uint32_t kParquetPluginVersion = 1;
struct ParquetPlugin {
    uint32_t version = 0;
    // Does what open_table() does.
    std::unique_ptr<TableRows> (*open)(const std::string& path,
                                       std::span<const std::string_view> columns) = nullptr;
};

// True if PATH is named *.parquet, or is a file that begins like one.
[[nodiscard]] bool is_parquet(const std::string& path);

// Opens the Parquet file PATH and reads only the columns that COLUMNS names. A null is a key that
// the row lacks, except that `content` is null, as in a message without one. Lists and structs
// become lists and objects, binary columns texts, times and decimals the text that names them.
// Throws Error{kInput} for another file, or one without any of COLUMNS; Error{kSetup} if this build
// does not read Parquet.
[[nodiscard]] std::unique_ptr<TableRows> open_table(const std::string& path,
                                                    std::span<const std::string_view> columns);

}  // namespace dslaunch::storage
