// libdsl_parquet.so: reads Parquet with Arrow, one batch of rows at a time.
#include <arrow/array.h>
#include <arrow/io/file.h>
#include <arrow/memory_pool.h>
#include <arrow/record_batch.h>
#include <arrow/type.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/properties.h>

#include <algorithm>
#include <new>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "storage/parquet_plugin/row_json.h"
#include "storage/tables/table_rows.h"

namespace dslaunch::storage {
namespace {

constexpr int64_t kBytesOfRead = int64_t{1} << 20;  // read from a column at once

// Throws Error{kInput} with PATH and the first line of WHY, Arrow's message. The other lines name
// files of Arrow's source.
[[noreturn]] void refuse(const std::string& path, std::string_view why) {
    fail(ExitCode::kInput, "{}: cannot be read as Parquet: {}", printable(path),
         printable(why.substr(0, why.find('\n'))));
}

template <typename Value>
Value value_of(const std::string& path, arrow::Result<Value> result) {
    if (!result.ok()) refuse(path, result.status().message());
    return std::move(result).ValueUnsafe();
}

void require(const std::string& path, const arrow::Status& status) {
    if (!status.ok()) refuse(path, status.message());
}

// Throws Error{kInput} if ARRAY or a part of it refers to an entry that its dictionary does not
// have. Arrow's reader does not check indices in a damaged file. ValidateFull() would also check
// UTF-8, which is checked here row by row.
void require_entries(const std::string& path, const arrow::Array& array) {
    for (const std::shared_ptr<arrow::ArrayData>& child : array.data()->child_data)
        require_entries(path, *arrow::MakeArray(child));
    if (array.type_id() != arrow::Type::DICTIONARY) return;
    const auto& of_entries = static_cast<const arrow::DictionaryArray&>(array);
    const arrow::Array& entries = *of_entries.dictionary();
    require(path, entries.Validate());
    require_entries(path, entries);
    for (int64_t i = 0; i < array.length(); ++i) {
        if (array.IsNull(i)) continue;
        const int64_t entry = of_entries.GetValueIndex(i);
        if (entry < 0 || entry >= entries.length())
            refuse(path, fmt::format("a value uses entry {} of a dictionary with {} entries", entry,
                                     entries.length()));
    }
}

void add_leaves(const parquet::arrow::SchemaField& field, std::vector<int>& leaves) {
    if (field.is_leaf()) leaves.push_back(field.column_index);
    for (const parquet::arrow::SchemaField& child : field.children) add_leaves(child, leaves);
}

std::unique_ptr<parquet::arrow::FileReader> reader_of(const std::string& path) {
    arrow::MemoryPool* const pool = arrow::system_memory_pool();
    parquet::ReaderProperties properties(pool);
    // Without this, each column of a row group is read completely before its first row is returned.
    properties.enable_buffered_stream();
    properties.set_buffer_size(kBytesOfRead);
    parquet::ArrowReaderProperties batches(/*use_threads=*/false);
    batches.set_pre_buffer(false);
    batches.set_batch_size(kTableRowsOfBlock);
    parquet::arrow::FileReaderBuilder builder;
    require(path,
            builder.Open(value_of(path, arrow::io::ReadableFile::Open(path, pool)), properties));
    return value_of(path, builder.memory_pool(pool)->properties(batches)->Build());
}

class ParquetRows final : public TableRows {
  public:
    ParquetRows(const std::string& path, std::span<const std::string_view> columns)
        : path_(path), reader_(reader_of(path)) {
        const std::vector<int> leaves = leaves_of(columns);
        reader_->set_batch_size(rows_of_block(leaves));
        std::vector<int> groups(static_cast<size_t>(reader_->num_row_groups()));
        for (size_t g = 0; g < groups.size(); ++g) groups[g] = static_cast<int>(g);
        batches_ = value_of(path_, reader_->GetRecordBatchReader(groups, leaves));
    }

    std::vector<TableRow> next() override {
        std::shared_ptr<arrow::RecordBatch> batch;
        do {
            batch = value_of(path_, batches_->Next());
        } while (batch != nullptr && batch->num_rows() == 0);
        std::vector<TableRow> rows;
        if (batch == nullptr) return rows;
        require(path_, batch->Validate());
        for (const std::shared_ptr<arrow::Array>& column : batch->columns())
            require_entries(path_, *column);
        for (int64_t i = 0; i < batch->num_rows(); ++i) rows.push_back(row_of(*batch, i));
        return rows;
    }

  private:
    [[nodiscard]] std::vector<int> leaves_of(std::span<const std::string_view> columns) const {
        std::vector<int> leaves;
        std::vector<std::string> names;
        for (const parquet::arrow::SchemaField& field : reader_->manifest().schema_fields) {
            names.push_back(field.field->name());
            if (std::ranges::count(columns, std::string_view(names.back())) > 0)
                add_leaves(field, leaves);
        }
        if (leaves.empty())
            fail(ExitCode::kInput, "{}: has the columns {}, but none of the expected ones: {}",
                 printable(path_), printable(join(names, ", ")),
                 join(std::vector<std::string>(columns.begin(), columns.end()), ", "));
        return leaves;
    }

    // Returns the number of rows in a block: at most kTableRowsOfBlock, and few enough to fit into
    // the block even in the row group whose rows are the longest on average.
    [[nodiscard]] int64_t rows_of_block(const std::vector<int>& leaves) const {
        const parquet::FileMetaData& facts = *reader_->parquet_reader()->metadata();
        int64_t rows = kTableRowsOfBlock;
        for (int g = 0; g < facts.num_row_groups(); ++g) {
            const auto group = facts.RowGroup(g);
            int64_t bytes = 1;
            // In a damaged file, total_uncompressed_size() can be any number.
            for (const int leaf : leaves)
                bytes += std::clamp<int64_t>(group->ColumnChunk(leaf)->total_uncompressed_size(), 0,
                                             kTableBytesOfBlock);
            const int64_t bytes_each = bytes / std::max<int64_t>(group->num_rows(), 1) + 1;
            rows = std::min(rows, kTableBytesOfBlock / bytes_each);
        }
        return std::max<int64_t>(rows, 1);
    }

    static TableRow row_of(const arrow::RecordBatch& batch, int64_t index) {
        TableRow row;
        row.json = "{";
        for (int c = 0; c < batch.num_columns(); ++c) {
            const arrow::Array& column = *batch.column(c);
            if (is_null_at(column, index)) continue;
            if (row.json.size() > 1) row.json += ',';
            append_quoted(row.json, batch.column_name(c));
            row.json += ':';
            try {
                append_json(row.json, column, index);
            } catch (const NoJson& why) {
                return {"", batch.column_name(c) + ": " + why.what()};
            }
        }
        row.json += '}';
        return row;
    }

    std::string path_;
    std::unique_ptr<parquet::arrow::FileReader> reader_;
    std::unique_ptr<arrow::RecordBatchReader> batches_;
};

// Converts the exceptions that some of the reader's functions throw for damaged files into our
// errors.
class GuardedRows final : public TableRows {
  public:
    GuardedRows(const std::string& path, std::span<const std::string_view> columns) : path_(path) {
        guard([&] { rows_.emplace(path, columns); });
    }
    std::vector<TableRow> next() override {
        std::vector<TableRow> rows;
        guard([&] { rows = rows_->next(); });
        return rows;
    }

  private:
    template <typename Work>
    void guard(const Work& work) const {
        try {
            work();
        } catch (const Error&) {
            throw;
        } catch (const std::bad_alloc&) {
            throw;
        } catch (const std::exception& error) {
            refuse(path_, error.what());
        }
    }

    std::string path_;
    std::optional<ParquetRows> rows_;
};

std::unique_ptr<TableRows> open_rows(const std::string& path,
                                     std::span<const std::string_view> columns) {
    return std::make_unique<GuardedRows>(path, columns);
}

}  // namespace
}  // namespace dslaunch::storage

extern "C" __attribute__((visibility("default"))) const void* dsl_parquet_plugin();

const void* dsl_parquet_plugin() {
    static constexpr dslaunch::storage::ParquetPlugin kPlugin = {
        dslaunch::storage::kParquetPluginVersion, dslaunch::storage::open_rows};
    return &kPlugin;
}
