// The bytes of TensorBoard's event files: records framed as TFRecords, each a protobuf message
// tensorflow.Event. Only the fields that scalars need are written; docs/reference/metrics.md names
// them. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "launch/metrics/metrics_record.h"

namespace dslaunch::launch {

// Returns the CRC-32C (Castagnoli) of BYTES.
[[nodiscard]] uint32_t crc32c(std::string_view bytes);

// Returns MESSAGE as a TFRecord: its length in 8 bytes, the masked CRC-32C of the length, MESSAGE,
// its masked CRC-32C.
[[nodiscard]] std::string tf_record(std::string_view message);

// The wall times below are in seconds of Unix time.

// Returns the first message of every event file, which says that the format is "brain.Event:2".
[[nodiscard]] std::string version_event(double wall_time_s);
// Returns the message that makes TensorBoard discard the values that it has already read for STEP
// and for later steps.
[[nodiscard]] std::string session_start_event(double wall_time_s, int64_t step);
// Returns the message with all EVENTS of STEP, as 32-bit floats. REQUIRES: STEP is not negative.
[[nodiscard]] std::string scalars_event(double wall_time_s, int64_t step,
                                        std::span<const MetricEvent> events);

}  // namespace dslaunch::launch
