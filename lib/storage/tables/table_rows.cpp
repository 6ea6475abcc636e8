#include "storage/tables/table_rows.h"

#include <array>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/machine/plugin.h"
#include "base/text.h"

namespace dslaunch::storage {

bool is_parquet(const std::string& path) {
    if (path.ends_with(".parquet")) return true;
    std::error_code ignored;
    // Reading from a pipe would consume its bytes.
    if (!std::filesystem::is_regular_file(path, ignored)) return false;
    std::array<char, 4> begin = {};
    std::ifstream(path, std::ios::binary).read(begin.data(), begin.size());
    return std::string_view(begin.data(), begin.size()) == "PAR1";
}

std::unique_ptr<TableRows> open_table(const std::string& path,
                                      std::span<const std::string_view> columns) {
    const std::string plugin = own_plugin("libdsl_parquet.so");
    constexpr const char* kRemedy =
        "run `make parquet` to fetch Arrow and build the Parquet reader. Or convert the table to "
        "JSON lines in Python: datasets.Dataset.from_parquet(\"F.parquet\").to_json(\"F.jsonl\")";
    if (!std::filesystem::exists(plugin))
        fail(ExitCode::kSetup, "{}: is a Parquet file, which this build cannot read: {}",
             printable(path), kRemedy);
    constexpr PluginKind kKind = {.name = "Parquet",
                                  .entry = "dsl_parquet_plugin",
                                  .version = kParquetPluginVersion,
                                  .remedy = kRemedy};
    return static_cast<const ParquetPlugin*>(open_plugin(plugin, kKind))->open(path, columns);
}

}  // namespace dslaunch::storage
