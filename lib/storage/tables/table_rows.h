// The rows of a table, each as a line of JSON with the same content. The implementation is a plugin
// (lib/storage/parquet_plugin, libdsl_parquet.so), which is opened only if a table is read, since
// some machines have no Arrow. No type of Arrow appears here. Data path: .parquet -> [here] ->
// readers of lines of JSON. Blocks on the disk; one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::storage {

// A row, or the reason why it has no JSON.
struct TableRow {
    std::string json;    // an object, without newline; texts have the same bytes as in the table
    std::string reason;  // why the row has no JSON; empty if it has
};

// The rows of an open table, which are read once.
class TableRows {
  public:
    virtual ~TableRows() = default;

    // Returns the next rows in order; an empty list at the end. Keeps about kTableBytesOfBlock in
    // memory at once, however large the file and its row groups are. Throws Error{kInput} naming
    // the file if it is damaged.
    [[nodiscard]] virtual std::vector<TableRow> next() = 0;
};

constexpr int64_t kTableBytesOfBlock = int64_t{8} << 20;
constexpr int64_t kTableRowsOfBlock = 512;

// The plugin's interface, which it exports as `dsl_parquet_plugin`.
inline constexpr uint32_t kParquetPluginVersion = 1;
// The plugin is refused unless its `version` is kParquetPluginVersion.
struct ParquetPlugin {
    uint32_t version = 0;
    // The implementation of open_table().
    std::unique_ptr<TableRows> (*open)(const std::string& path,
                                       std::span<const std::string_view> columns) = nullptr;
};

// Returns true if PATH is named *.parquet, or is a file that begins like one.
[[nodiscard]] bool is_parquet(const std::string& path);

// Opens the Parquet file PATH and reads only the columns that COLUMNS names. A null is left out, as
// if the row did not have this key. Only a null `content` is kept, because a message may have no
// content. Lists and structs become arrays and objects; binary columns become texts; times and
// decimals become texts that spell them. Throws Error{kInput} if the file is not Parquet or has no
// column of COLUMNS, and Error{kSetup} if this build does not read Parquet.
[[nodiscard]] std::unique_ptr<TableRows> open_table(const std::string& path,
                                                    std::span<const std::string_view> columns);

}  // namespace dslaunch::storage
