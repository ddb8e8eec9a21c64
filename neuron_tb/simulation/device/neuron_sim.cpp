// A simulated Neuron device for PyTorch: device "neuron" (PrivateUse1) with a Kineto plugin.
//
// Results are computed at once on the host. What is simulated is *time*: every launch is queued
// behind the work of its stream and its NeuronCore on a timeline in real nanoseconds, so device
// work can still be "in flight" when the host goes on, synchronizes, or stops a profiler. The
// lengths of executions are settings, never measurements. README.md beside this file says more.

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <ATen/record_function.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/alloc_cpu.h>
#include <c10/util/ApproximateClock.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/profiler/stubs/base.h>
#include <torch/library.h>
#if NEURON_SIM_TORCH >= 212
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>
#endif

#include <Config.h>
#include <libkineto.h>
#include <output_base.h>

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <deque>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>
#include <unordered_map>

namespace py = pybind11;

namespace {

constexpr auto kNeuron = c10::DeviceType::PrivateUse1;
constexpr int kMostCores = 16;
constexpr int kMostStreams = 16;
constexpr int64_t kComputeUnit = 1;  // the upper 16 bits of a sequence id
const char* const kSynthetic =
    "simulated: made by tests/neuron_sim on a CPU; device times are settings, not measurements";

int64_t now_ns() {
  return c10::getTime();  // nanoseconds since the Unix epoch, the clock of torch's profiler
}

void sleep_until(int64_t time_ns) {
  for (int64_t left = time_ns - now_ns(); left > 0; left = time_ns - now_ns())
    std::this_thread::sleep_for(std::chrono::nanoseconds(left));
}

// -- settings ---------------------------------------------------------------------------------

enum class Mode { None, Kernel, Driver };

struct Settings {
  Mode mode = Mode::Kernel;
  int cores = 2;
  int lnc = 1;                    // physical cores per logical core
  bool drop_unfinished = true;    // what has not finished at stop() is lost
  bool annotations = true;        // the user's ranges are shown on the device too
  bool stubs = true;              // ProfilerStubs: legacy profiling without Kineto
  int64_t kernel_ns = 200'000;    // length of an execution
  int64_t copy_ns = 20'000;       // length of a copy between host and device
  int64_t launch_ns = 2'000;      // length of the runtime call that queues one of them
  int64_t notice_ns = 3'000;      // from completion until the host sees it: the window's end
  size_t most_works = 50'000;     // of the truth table
  std::unordered_map<std::string, int64_t> lengths;  // by operator or copy name
  std::string instance = "i-simulated";
};

// -- the timeline -----------------------------------------------------------------------------

enum class Kind : uint8_t { Execution, ToDevice, FromDevice, OnDevice };
enum class Fate : uint8_t { OutsideSession, Recording, Recorded, Unfinished };

// One thing that a NeuronCore does: an execution of an operator, or a copy. Times in ns.
struct Work {
  int32_t op = 0, neff = 0, key = 0;  // positions in the table of names
  Kind kind = Kind::Execution;
  Fate fate = Fate::OutsideSession;
  int16_t core = 0, stream = 0;
  int32_t session = 0, exec_id = 0, correlation = 0, thread = 0;
  int64_t bytes = 0, sequence = 0;
  int64_t call_start = 0, call_end = 0, start = 0, end = 0;
  uint64_t external_id = 0, annotation_id = 0;
  bool copy() const { return kind != Kind::Execution; }
};

// What the runtime's own capture was asked for: "key:value;key:value" of NeuronConfig.
struct RuntimeConfig {
  std::map<std::string, std::string> values;

  explicit RuntimeConfig(const std::string& text = "") {
    std::stringstream parts(text);
    for (std::string part; std::getline(parts, part, ';');) {
      auto colon = part.find(':');
      if (colon != std::string::npos) values[part.substr(0, colon)] = part.substr(colon + 1);
    }
  }
  std::string get(const std::string& key, const std::string& otherwise) const {
    auto found = values.find(key);
    return found == values.end() ? otherwise : found->second;
  }
  bool flag(const std::string& key, bool otherwise) const {
    return get(key, otherwise ? "true" : "false") == "true";
  }
  std::string directory() const {
    const char* variable = std::getenv("NEURON_RT_INSPECT_OUTPUT_DIR");
    return get("profile_output_dir", variable ? variable : "");
  }
  bool captures(int core) const {
    std::stringstream parts(get("capture_enabled_for_nc", ""));
    bool any = false;
    for (std::string part; std::getline(parts, part, ',');) {
      if (part.empty()) continue;
      any = true;
      auto dash = part.find('-');
      int first = std::stoi(part), last = dash == std::string::npos ? first : std::stoi(part.substr(dash + 1));
      if (first <= core && core <= last) return true;
    }
    return !any;
  }
};

struct CoreState {
  int64_t busy_until[2] = {0, 0};                     // compute, copies
  std::array<int64_t, kMostStreams> stream_until{};   // order within a stream
  int64_t allocated = 0, peak = 0, reserved = 0;
  int64_t syncs = 0;
};

thread_local c10::DeviceIndex t_core = 0;
thread_local std::array<int16_t, kMostCores> t_stream{};
thread_local bool t_on_host = false;   // inside an operator's computation on the host
thread_local std::shared_ptr<c10::ThreadLocalDebugInfo> t_profiler;  // put aside meanwhile

// Kineto's correlation ids of the operators and ranges that are open on this thread. A profile
// may stop while some are open and never pop them, so the ids of an older session do not count.
struct OpenIds {
  std::vector<uint64_t> ids;
  int32_t session = 0;

  void push(uint64_t id, int32_t current) {
    if (session != current) ids.clear();
    session = current;
    ids.push_back(id);
  }
  void pop(int32_t current) {
    if (session == current && !ids.empty()) ids.pop_back();
  }
  uint64_t innermost(int32_t current) const {
    return session == current && current && !ids.empty() ? ids.back() : 0;
  }
};
thread_local OpenIds t_operators, t_annotations;

class Simulator {
 public:
  std::mutex mutex;
  Settings settings;
  CoreState cores[kMostCores];
  std::deque<Work> works;               // the truth table: newest at the end
  int64_t works_forgotten = 0;
  std::deque<std::string> names;        // a deque: references into it stay valid
  std::unordered_map<std::string, int32_t> name_ids;
  std::atomic<int32_t> session{0};      // number of the running session, 0: none
  int32_t last_session = 0;
  std::vector<Work> recorded;           // of the running session
  int64_t starts = 0, stops = 0, refused = 0, unfinished = 0, launches = 0;
  std::string last_config, last_directory;
  std::vector<std::string> last_types;

  int32_t intern(const std::string& text) {
    auto [found, is_new] = name_ids.emplace(text, (int32_t)names.size());
    if (is_new) names.push_back(text);
    return found->second;
  }

  // Queue work behind its stream and its engine. The host pays for the call, not for the work.
  void launch(const std::string& op, const std::string& neff, const std::string& key, Kind kind,
              int64_t bytes, int core) {
    Work work;
    work.call_start = now_ns();
    int64_t launch_ns;
    {
      std::lock_guard<std::mutex> lock(mutex);
      launch_ns = settings.launch_ns;
    }
    while (now_ns() < work.call_start + launch_ns) {
    }
    work.call_end = now_ns();
    work.kind = kind;
    work.core = (int16_t)core;
    work.stream = t_stream[core];
    work.bytes = bytes;
    work.thread = libkineto::systemThreadId();
    std::lock_guard<std::mutex> lock(mutex);
    work.external_id = t_operators.innermost(session);
    work.annotation_id = t_annotations.innermost(session);
    auto length = settings.lengths.find(op);
    auto& state = cores[core];
    auto& engine = state.busy_until[work.copy()];
    auto& stream = state.stream_until[work.stream];
    work.start = std::max({work.call_end, engine, stream});
    work.end = work.start + (length != settings.lengths.end() ? length->second
                             : work.copy()                    ? settings.copy_ns
                                                              : settings.kernel_ns);
    engine = stream = work.end;
    work.op = intern(op);
    work.neff = intern(neff);
    work.key = intern(key);
    work.correlation = (int32_t)++launches;
    work.sequence = (kComputeUnit << 48) | launches;
    work.exec_id = (int32_t)launches;
    work.session = session;
    work.fate = work.session ? Fate::Recording : Fate::OutsideSession;
    if (work.session) recorded.push_back(work);
    works.push_back(work);
    while (works.size() > settings.most_works) {
      works.pop_front();
      ++works_forgotten;
    }
  }

  int64_t core_until(int core) {
    std::lock_guard<std::mutex> lock(mutex);
    auto& state = cores[core];
    int64_t until = std::max(state.busy_until[0], state.busy_until[1]);
    for (int64_t stream : state.stream_until) until = std::max(until, stream);
    return until;
  }
  int64_t stream_until(int core, int stream) {
    std::lock_guard<std::mutex> lock(mutex);
    return cores[core].stream_until[stream];
  }
  void synchronize(int core) {
    {
      std::lock_guard<std::mutex> lock(mutex);
      ++cores[core].syncs;
    }
    sleep_until(core_until(core));
  }
  int core_count() { return settings.cores; }

  void check_core(int core) {
    TORCH_CHECK(0 <= core && core < settings.cores, "simulated Neuron: there is no core ", core,
                ", only ", settings.cores);
  }
};

Simulator& sim() {
  static auto* simulator = new Simulator;  // never destroyed: threads may outlive main
  return *simulator;
}

int core_of(c10::Device device) {
  return device.index() < 0 ? t_core : device.index();
}

// While the host computes an operator's result, torch's profiler must see neither the operators
// nor the host memory that this takes: a NeuronCore would have done it.
class OnHost {
 public:
  OnHost() : outer_(t_on_host) {
    if (outer_) return;
    t_on_host = true;
    t_profiler = c10::ThreadLocalDebugInfo::current();
    c10::ThreadLocalDebugInfo::_forceCurrentDebugInfo(nullptr);
  }
  ~OnHost() {
    if (outer_) return;
    c10::ThreadLocalDebugInfo::_forceCurrentDebugInfo(t_profiler);
    t_profiler.reset();
    t_on_host = false;
  }
  OnHost(const OnHost&) = delete;
  OnHost& operator=(const OnHost&) = delete;

 private:
  bool outer_;
  at::DisableRecordFunctionGuard no_records_;
};

// -- memory -----------------------------------------------------------------------------------

class Allocator final : public c10::DeviceAllocator {
  struct Block {
    size_t bytes;
    int core;
  };
  static constexpr int64_t kChunk = 20 << 20;  // device memory is reserved in chunks and kept
  std::mutex mutex_;
  std::unordered_map<void*, Block> blocks_;

  static void report(void* pointer, int64_t change, int core) {
    int64_t allocated, reserved;
    {
      std::lock_guard<std::mutex> lock(sim().mutex);
      auto& state = sim().cores[core];
      state.allocated += change;
      state.peak = std::max(state.peak, state.allocated);
      state.reserved = std::max(state.reserved, (state.allocated + kChunk - 1) / kChunk * kChunk);
      allocated = state.allocated;
      reserved = state.reserved;
    }
    auto hidden = c10::ThreadLocalDebugInfo::current();
    if (t_on_host) c10::ThreadLocalDebugInfo::_forceCurrentDebugInfo(t_profiler);
    c10::reportMemoryUsageToProfiler(
        pointer, change, allocated, reserved, c10::Device(kNeuron, (c10::DeviceIndex)core));
    if (t_on_host) c10::ThreadLocalDebugInfo::_forceCurrentDebugInfo(hidden);
  }

  static void release(void* pointer);

 public:
  c10::DataPtr allocate(size_t bytes) override {
    int core = t_core;
    void* pointer = bytes ? c10::alloc_cpu(bytes) : nullptr;
    if (pointer) {
      {
        std::lock_guard<std::mutex> lock(mutex_);
        blocks_[pointer] = {bytes, core};
      }
      report(pointer, (int64_t)bytes, core);
    }
    return {pointer, pointer, &release, c10::Device(kNeuron, (c10::DeviceIndex)core)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex core) override {
    std::lock_guard<std::mutex> lock(sim().mutex);
    sim().cores[core].peak = sim().cores[core].allocated;
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex core) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    std::lock_guard<std::mutex> lock(sim().mutex);
    const auto& state = sim().cores[core];
    stats.allocated_bytes[0].current = state.allocated;
    stats.allocated_bytes[0].peak = state.peak;
    stats.reserved_bytes[0].current = stats.reserved_bytes[0].peak = state.reserved;
    return stats;
  }
};

Allocator& allocator() {
  static auto* instance = new Allocator;
  return *instance;
}

void Allocator::release(void* pointer) {
  if (!pointer) return;
  Block block;
  {
    auto& self = allocator();
    std::lock_guard<std::mutex> lock(self.mutex_);
    block = self.blocks_.at(pointer);
    self.blocks_.erase(pointer);
  }
  report(pointer, -(int64_t)block.bytes, block.core);
  c10::free_cpu(pointer);
}

// -- devices, streams, events -----------------------------------------------------------------

class Guard final : public c10::impl::DeviceGuardImplInterface {
  static c10::Stream stream(c10::Device device, int64_t id) {
    c10::Device core(kNeuron, (c10::DeviceIndex)core_of(device));
    return c10::Stream(c10::Stream::UNSAFE, core, id);
  }
  static int64_t& time_of(void* event) { return *static_cast<int64_t*>(event); }

 public:
  c10::DeviceType type() const override { return kNeuron; }
  c10::Device getDevice() const override { return {kNeuron, t_core}; }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.index() >= 0) t_core = device.index();
  }
  void setDevice(c10::Device device) const override {
    if (device.index() >= 0) sim().check_core(device.index());
    uncheckedSetDevice(device);
  }
  c10::Device exchangeDevice(c10::Device device) const override {
    auto before = getDevice();
    setDevice(device);
    return before;
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return (c10::DeviceIndex)sim().core_count();
  }

  c10::Stream getStream(c10::Device device) const override {
    return stream(device, t_stream[core_of(device)]);
  }
  c10::Stream getDefaultStream(c10::Device device) const override { return stream(device, 0); }
  c10::Stream getNewStream(c10::Device device, int = 0) const override {
    static std::atomic<int> next{0};
    return stream(device, 1 + next++ % (kMostStreams - 1));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool = false) const override {
    return getNewStream(device);
  }
  c10::Stream exchangeStream(c10::Stream to) const override {
    auto before = getStream(to.device());
    t_stream[core_of(to.device())] = (int16_t)to.id();
    return before;
  }
  bool queryStream(const c10::Stream& s) const override {
    return sim().stream_until(core_of(s.device()), (int)s.id()) <= now_ns();
  }
  void synchronizeStream(const c10::Stream& s) const override {
    sleep_until(sim().stream_until(core_of(s.device()), (int)s.id()));
  }
  void synchronizeDevice(const c10::DeviceIndex core) const override {
    sim().synchronize(core < 0 ? t_core : core);
  }

  void record(void** event, const c10::Stream& s, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    if (!*event) *event = new int64_t(0);
    time_of(*event) = std::max(now_ns(), sim().stream_until(core_of(s.device()), (int)s.id()));
  }
  void block(void* event, const c10::Stream& s) const override {
    if (!event) return;
    std::lock_guard<std::mutex> lock(sim().mutex);
    auto& until = sim().cores[core_of(s.device())].stream_until[s.id()];
    until = std::max(until, time_of(event));
  }
  bool queryEvent(void* event) const override { return !event || time_of(event) <= now_ns(); }
  void synchronizeEvent(void* event) const override {
    if (event) sleep_until(time_of(event));
  }
  double elapsedTime(void* from, void* to, const c10::DeviceIndex) const override {
    return (double)(time_of(to) - time_of(from)) / 1e6;  // milliseconds
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<int64_t*>(event);
  }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  void init() const override {}
  c10::DeviceIndex deviceCount() const override { return (c10::DeviceIndex)sim().core_count(); }
  c10::DeviceIndex getCurrentDevice() const override { return t_core; }
  void setCurrentDevice(c10::DeviceIndex core) const override {
    sim().check_core(core);
    t_core = core;
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex core) const override {
    auto before = t_core;
    if (core >= 0) setCurrentDevice(core);
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex core) const override {
    return exchangeDevice(core);
  }
  // Pinned memory is ordinary memory here, so scripts that ask for it work.
  at::Allocator* getPinnedMemoryAllocator() const override {
    return c10::GetAllocator(c10::DeviceType::CPU);
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    c10::DeviceGuard guard(storage.device());
    auto fresh = allocator().allocate(bytes);
    if (bytes && storage.nbytes())
      std::memcpy(fresh.get(), storage.data(), std::min(bytes, storage.nbytes()));
    auto* implementation = storage.unsafeGetStorageImpl();
    implementation->set_data_ptr_noswap(std::move(fresh));
    implementation->set_nbytes(bytes);
  }
};

// -- operators --------------------------------------------------------------------------------

// A host tensor over the same bytes as a tensor of the simulated device.
at::Tensor on_host(const at::Tensor& tensor) {
  if (!tensor.is_privateuseone()) return tensor;
  auto storage = tensor.storage();
  auto count = (int64_t)(storage.nbytes() / tensor.element_size());
  auto flat = at::from_blob(const_cast<void*>(storage.data()), {count}, [storage](void*) {},
                            tensor.options().device(at::kCPU));
  return flat.as_strided(tensor.sizes(), tensor.strides(), tensor.storage_offset());
}

at::Tensor empty(c10::IntArrayRef size, std::optional<at::ScalarType> type,
                 std::optional<at::Layout>, std::optional<c10::Device> device, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_generic(size, &allocator(),
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(type), format);
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef strides,
                         std::optional<at::ScalarType> type, std::optional<at::Layout>,
                         std::optional<c10::Device> device, std::optional<bool>) {
  c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_strided_generic(size, strides, &allocator(),
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           c10::dtype_or_default(type));
}

// The key of a compiled executable, in the form that AWS's screenshots show: name--inputs:hash.
std::string with_digest(std::string key) {
  key.erase(std::remove(key.begin(), key.end(), ' '), key.end());
  char digest[40];
  std::snprintf(digest, sizeof digest, ":sim%016zx", std::hash<std::string>{}(key));
  return key + digest;
}

std::string copy_key(const at::Tensor& from, const at::Tensor& to) {
  if (!sim().session) return "";
  std::ostringstream text;
  text << "_copy_from--_" << from.sizes() << ":" << c10::toString(from.scalar_type()) << "_"
       << to.sizes() << ":" << c10::toString(to.scalar_type()) << "_i2";
  return with_digest(text.str());
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  {
    OnHost host;
    at::AutoDispatchBelowADInplaceOrView below;
    on_host(to).copy_(on_host(from));
  }
  if (t_on_host) return to;  // part of an operator, which is counted as a whole
  bool in = to.is_privateuseone(), out = from.is_privateuseone();
  int core = core_of(in ? to.device() : from.device());
  bool plain = from.scalar_type() == to.scalar_type() && from.is_contiguous() && to.is_contiguous();
  if (in && out && !plain) {  // rearranging or converting takes the core, not only its DMA
    sim().launch("aten::_copy_from", "_copy_from_neff", copy_key(from, to), Kind::Execution,
                 (int64_t)from.nbytes(), core);
    return to;
  }
  const char* name = in && out ? "Memcpy DtoD" : in ? "Memcpy HtoD" : "Memcpy DtoH";
  auto kind = in && out ? Kind::OnDevice : in ? Kind::ToDevice : Kind::FromDevice;
  sim().launch(name, name, "", kind, (int64_t)to.nbytes(), core);
  if (!in && !non_blocking) sleep_until(sim().stream_until(core, t_stream[core]));
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  if (to.sizes() != from.sizes()) at::native::resize_(to, from.sizes());
  return copy_from(from, to, false);
}

at::Scalar local_scalar_dense(const at::Tensor& tensor) {
  at::Scalar value;
  {
    OnHost host;
    at::AutoDispatchBelowADInplaceOrView below;
    value = on_host(tensor).item();
  }
  if (!t_on_host) {
    int core = core_of(tensor.device());
    sim().launch("Memcpy DtoH", "Memcpy DtoH", "", Kind::FromDevice,
                 (int64_t)tensor.element_size(), core);
    sleep_until(sim().stream_until(core, t_stream[core]));
  }
  return value;
}

void each_tensor(const torch::jit::Stack& stack, size_t first,
                 const std::function<void(const at::Tensor&)>& visit) {
  for (size_t i = first; i < stack.size(); ++i) {
    const auto& value = stack[i];
    if (value.isTensor()) {
      if (value.toTensor().defined()) visit(value.toTensor());
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) visit(tensor);
    } else if (value.isOptionalTensorList()) {
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
        if (tensor && tensor->defined()) visit(*tensor);
    }
  }
}

// Which executable an operator would run: its name and the shapes and types of its inputs.
std::string cache_key(const std::string& base, const torch::jit::Stack& stack, size_t first) {
  std::ostringstream text;
  int count = 0;
  text << base << "--";
  each_tensor(stack, first, [&](const at::Tensor& tensor) {
    if (count++ < 4) text << "_" << tensor.sizes() << ":" << c10::toString(tensor.scalar_type());
  });
  text << "_i" << count;
  return with_digest(text.str());
}

// Every operator of the device that has no own function here: one execution of a NeuronCore.
void run_on_core(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  if (t_on_host) return at::native::cpu_fallback(op, stack);
  const auto& schema = op.schema();
  size_t first = stack->size() - schema.arguments().size();
  int core = -1;
  int64_t bytes = 0;
  each_tensor(*stack, first, [&](const at::Tensor& tensor) {
    bytes += (int64_t)tensor.nbytes();
    if (core < 0 && tensor.is_privateuseone()) core = core_of(tensor.device());
  });
  for (size_t i = first; core < 0 && i < stack->size(); ++i)
    if ((*stack)[i].isDevice()) core = core_of((*stack)[i].toDevice());
  if (core < 0) core = t_core;
  const std::string& name = schema.name();
  std::string base = name.substr(name.rfind(':') + 1);
  std::string key = sim().session ? cache_key(base, *stack, first) : "";
  c10::DeviceGuard guard(c10::Device(kNeuron, (c10::DeviceIndex)core));
  {
    OnHost host;
    at::native::cpu_fallback(op, stack);
  }
  sim().launch(name, base + "_neff", key, Kind::Execution, bytes, core);
  for (const auto& result : schema.returns())
    if (result.type()->kind() != c10::TypeKind::TensorType &&
        result.type()->kind() != c10::TypeKind::ListType) {
      sleep_until(sim().stream_until(core, t_stream[core]));  // the host needs the value
      break;
    }
}

// Operators that torch would decompose into an overload of the same name (add -> add.out, sum ->
// sum.dim_IntList) would be recorded twice under that name, and their device time counted twice.
// They are run as a whole instead. Returns their names.
std::vector<std::string> operators_run_as_a_whole() {
  auto& dispatcher = c10::Dispatcher::singleton();
  std::vector<c10::OperatorHandle> operators;
  std::set<std::string> computed;  // names with an overload that the host has a kernel for
  for (const auto& name : dispatcher.getAllOpNames()) {
    auto op = dispatcher.findSchema(name);
    if (!op || name.name.rfind("aten::", 0) != 0) continue;
    operators.push_back(*op);
    if (op->hasKernelForDispatchKey(c10::DispatchKey::CPU)) computed.insert(name.name);
  }
  std::vector<std::string> chosen;
  for (const auto& op : operators) {
    if (op.hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1)) continue;
    bool views = false, tensors = false, device = false;
    for (const auto& result : op.schema().returns())
      views |= result.alias_info() && !result.alias_info()->isWrite();
    for (const auto& argument : op.schema().arguments()) {
      tensors |= argument.type()->str().find("Tensor") != std::string::npos;
      device |= argument.name() == "device";
    }
    bool structured =
        op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional);
    bool decomposed = op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) &&
                      !op.hasKernelForDispatchKey(c10::DispatchKey::CPU) &&
                      computed.count(op.schema().name());
    if (!views && (structured || decomposed) && (tensors || device)) {
      const auto& name = op.operator_name();
      chosen.push_back(name.overload_name.empty() ? name.name
                                                  : name.name + "." + name.overload_name);
    }
  }
  return chosen;
}

void register_operators() {
  static torch::Library library(
      torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("_copy_from", &copy_from);
  library.impl("_copy_from_and_resize", &copy_from_and_resize);
  library.impl("_local_scalar_dense", &local_scalar_dense);
  library.impl("resize_", [](const at::Tensor& tensor, c10::SymIntArrayRef size,
                             std::optional<at::MemoryFormat> format) -> const at::Tensor& {
    return at::native::resize_(tensor, C10_AS_INTARRAYREF_SLOW(size), format);
  });
  library.impl("view", [](const at::Tensor& tensor, c10::SymIntArrayRef size) {
    return at::native::view(tensor, C10_AS_INTARRAYREF_SLOW(size));
  });
  library.impl("as_strided", [](const at::Tensor& tensor, c10::SymIntArrayRef size,
                                c10::SymIntArrayRef strides, std::optional<c10::SymInt> offset) {
    return at::native::as_strided_tensorimpl(
        tensor, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(strides),
        offset ? std::optional<int64_t>(offset->expect_int()) : std::nullopt);
  });
  library.impl("_reshape_alias", [](const at::Tensor& tensor, c10::SymIntArrayRef size,
                                    c10::SymIntArrayRef strides) {
    return at::native::_reshape_alias(
        tensor, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(strides));
  });
  library.impl("set_.source_Storage", [](at::Tensor& tensor, at::Storage storage) -> at::Tensor& {
    auto count = (int64_t)storage.nbytes() / (int64_t)tensor.element_size();
    return at::native::set_storage_cpu_(tensor, storage, 0, {count}, {});
  });
  library.impl("set_.source_Tensor",
               [](at::Tensor& tensor, const at::Tensor& source) -> at::Tensor& {
                 return at::native::set_storage_cpu_(tensor, source.storage(),
                                                     source.storage_offset(), source.sizes(),
                                                     source.strides());
               });
  library.impl("set_.source_Storage_storage_offset",
               [](at::Tensor& tensor, at::Storage storage, int64_t offset, c10::IntArrayRef size,
                  c10::IntArrayRef strides) -> at::Tensor& {
                 return at::native::set_storage_cpu_(tensor, storage, offset, size, strides);
               });
  library.impl("_fused_sdp_choice",
               [](const at::Tensor&, const at::Tensor&, const at::Tensor&,
                  const std::optional<at::Tensor>&, double, bool, std::optional<double>,
                  bool) -> int64_t { return 0; });  // attention by plain operators
  for (const auto& name : operators_run_as_a_whole())
    library.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&run_on_core>());
  static torch::Library everything(
      torch::Library::IMPL, "_", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  everything.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_core>());
}

// torch.autocast("neuron"): the same lists of operators as the other devices have.
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
#define NEURON_LOWER_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define NEURON_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
  AT_FORALL_LOWER_PRECISION_FP(NEURON_LOWER_PRECISION)
  AT_FORALL_FP32(NEURON_FP32)
#undef NEURON_LOWER_PRECISION
#undef NEURON_FP32
}

// -- legacy profiling (without Kineto) --------------------------------------------------------

struct Stubs final : torch::profiler::impl::ProfilerStubs {
  void record(c10::DeviceIndex* device, torch::profiler::impl::ProfilerVoidEventStub* event,
              int64_t* cpu_ns) const override {
    if (device) *device = t_core;
    int64_t now = now_ns();
    *event = std::make_shared<int64_t>(
        std::max(now, sim().stream_until(t_core, t_stream[t_core])));
    if (cpu_ns) *cpu_ns = now;
  }
  float elapsed(const torch::profiler::impl::ProfilerVoidEventStub* from,
                const torch::profiler::impl::ProfilerVoidEventStub* to) const override {
    return (float)(*static_cast<int64_t*>(to->get()) - *static_cast<int64_t*>(from->get())) /
        1000.f;  // microseconds
  }
  void mark(const char*) const override {}
  void rangePush(const char*) const override {}
  void rangePop() const override {}
  bool enabled() const override { return sim().settings.stubs; }
  void onEachDevice(std::function<void(int)> visit) const override {
    for (int core = 0; core < sim().core_count(); ++core) visit(core);
  }
  void synchronize() const override {
    for (int core = 0; core < sim().core_count(); ++core) sim().synchronize(core);
  }
};

// -- the runtime's own capture ----------------------------------------------------------------

std::string quoted(const std::string& text) {
  std::string json = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      json += '\\';
      json += c;
    } else if ((unsigned char)c < 0x20) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", c);
      json += code;
    } else {
      json += c;
    }
  }
  return json + "\"";
}

// One JSON object: field("name", "text").field("time", 12).text()
class Json {
 public:
  Json& field(const std::string& key, const std::string& value) { return raw(key, quoted(value)); }
  Json& field(const std::string& key, const char* value) { return raw(key, quoted(value)); }
  Json& field(const std::string& key, int64_t value) { return raw(key, std::to_string(value)); }
  Json& field(const std::string& key, double value) { return raw(key, std::to_string(value)); }
  Json& raw(const std::string& key, const std::string& value) {
    body_ += (body_.empty() ? "" : ", ") + quoted(key) + ": " + value;
    return *this;
  }
  std::string text() const { return "{" + body_ + "}"; }

 private:
  std::string body_;
};

void make_directories(const std::string& path) {
  for (size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    std::string part = path.substr(0, slash);
    if (::mkdir(part.c_str(), 0777) != 0 && errno != EEXIST) return;
    if (slash == std::string::npos) return;
  }
}

struct HostUse {
  int64_t time_ns = now_ns(), cpu_ns = 0, resident_bytes = 0, allocated[kMostCores] = {};

  static HostUse sample() {
    HostUse use;
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    auto ns = [](const timeval& t) { return t.tv_sec * 1'000'000'000LL + t.tv_usec * 1000LL; };
    use.cpu_ns = ns(usage.ru_utime) + ns(usage.ru_stime);
    std::ifstream pages("/proc/self/statm");
    int64_t size = 0, resident = 0;
    pages >> size >> resident;
    use.resident_bytes = resident * sysconf(_SC_PAGESIZE);
    std::lock_guard<std::mutex> lock(sim().mutex);
    for (int core = 0; core < kMostCores; ++core) use.allocated[core] = sim().cores[core].allocated;
    return use;
  }
};

// Writes <dir>/<instance>_pid_<pid>/<start>/ as the runtime does when a capture stops. The files
// have the runtime's names and a content of the simulator's own: a line of plain text that says
// so, then one JSON object per line.
class RuntimeCapture {
 public:
  RuntimeCapture(const RuntimeConfig& config, const std::string& config_text,
                 const HostUse& before, const HostUse& after, const std::vector<Work>& works)
      : config_(config), before_(before), after_(after) {
    auto& s = sim();
    cores_ = s.settings.cores;
    std::string instance = s.settings.instance;
    directory_ = config.directory() + "/" + instance + "_pid_" + std::to_string(getpid()) + "/" +
        std::to_string(before.time_ns);
    make_directories(directory_);
    if (config.flag("runtime", true)) {
      write_trace(works);
      write("trace_info.pb", {info(instance, config_text, s.settings.lnc)});
    }
    if (config.flag("cpu_util", false)) write("cpu_util.pb", {cpu_use()});
    if (config.flag("host_memory", false)) write("host_mem.pb", {memory(before_), memory(after_)});
    if (config.flag("device", false))
      for (int core = 0; core < cores_; ++core)
        if (config.captures(core))
          write("profile_nc_" + std::to_string(core) + "_session_" +
                    std::to_string(s.last_session) + ".ntff", {});
  }
  const std::string& directory() const { return directory_; }

 private:
  const RuntimeConfig& config_;
  const HostUse &before_, &after_;
  std::string directory_;
  int cores_;
  int64_t written_ = 0, overflowed_ = 0;

  void write(const std::string& name, const std::vector<std::string>& lines) {
    std::ofstream file(directory_ + "/" + name);
    file << "# " << name << " " << kSynthetic << "; not the runtime's format\n";
    for (const auto& line : lines) file << line << "\n";
  }

  void write_trace(const std::vector<Work>& works) {
    std::vector<std::string> lines;
    std::map<int, int64_t> events;
    int64_t most = std::stoll(config_.get("max_events_per_nc", "1000000"));
    for (const auto& work : works) {
      if (!config_.captures(work.core)) continue;
      if (++events[work.core] > most) {
        ++overflowed_;
        continue;
      }
      lines.push_back(line(work));
      ++written_;
    }
    for (const auto* use : {&before_, &after_})
      for (int core = 0; core < cores_; ++core)
        lines.push_back(Json()
                            .field("kind", "hbm")
                            .field("time_ns", use->time_ns)
                            .field("nc_idx", (int64_t)core)
                            .field("tensor_bytes", use->allocated[core])
                            .text());
    write("ntrace.pb", lines);
  }

  static std::string line(const Work& work) {
    const auto& names = sim().names;
    const char* kind = work.kind == Kind::Execution ? "execute"
        : work.kind == Kind::FromDevice             ? "read"
        : work.kind == Kind::ToDevice               ? "write"
                                                    : "copy";
    Json json;
    json.field("kind", kind)
        .field("operator", names[work.op])
        .field("nc_idx", (int64_t)work.core)
        .field("stream", (int64_t)work.stream)
        .field("thread_id", (int64_t)work.thread)
        .field("call_start_ns", work.call_start)
        .field("call_end_ns", work.call_end);
    // What had not finished when the capture stopped has no times of the device.
    bool finished = work.fate == Fate::Recorded;
    json.raw("device_start_ns", finished ? std::to_string(work.start) : "null");
    json.raw("device_end_ns", finished ? std::to_string(work.end) : "null");
    json.field("nrta_seq_id", work.sequence).field("exec_id", (int64_t)work.exec_id);
    json.field("size", work.bytes);
    if (!work.copy()) json.field("neff", names[work.neff]).field("neff_cache_key", names[work.key]);
    return json.text();
  }

  std::string info(const std::string& instance, const std::string& config_text, int lnc) {
    return Json()
        .field("synthetic", kSynthetic)
        .field("instance_id", instance)
        .field("process_id", (int64_t)getpid())
        .field("first_ts_ns", before_.time_ns)
        .field("last_ts_ns", after_.time_ns)
        .field("logical_cores", (int64_t)cores_)
        .field("physical_cores_per_logical_core", (int64_t)lnc)
        .field("clock_zero_ns", before_.time_ns - 1'000'000'000)
        .field("events", written_)
        .field("dropped_events", overflowed_)
        .field("config", config_text)
        .text();
  }

  std::string cpu_use() {
    double span = (double)(after_.time_ns - before_.time_ns);
    double percent = span > 0 ? 100.0 * (double)(after_.cpu_ns - before_.cpu_ns) / span : 0;
    double share = percent / (double)std::max(1u, std::thread::hardware_concurrency());
    return Json()
        .field("time_ns", before_.time_ns)
        .field("duration_ns", after_.time_ns - before_.time_ns)
        .field("cpu_id", "average")
        .field("percent", std::min(share, 100.0))
        .text();
  }

  static std::string memory(const HostUse& use) {
    double total = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    return Json()
        .field("time_ns", use.time_ns)
        .field("bytes", use.resident_bytes)
        .field("percent", total > 0 ? 100.0 * (double)use.resident_bytes / total : 0.0)
        .text();
  }
};

// -- the Kineto plugin ------------------------------------------------------------------------

using libkineto::ActivityType;

class Session final : public libkineto::IActivityProfilerSession {
 public:
  Session(std::set<ActivityType> types, std::string config)
      : types_(std::move(types)), config_text_(std::move(config)), config_(config_text_) {}

  void start() override {
    before_ = HostUse::sample();
    auto& s = sim();
    std::lock_guard<std::mutex> lock(s.mutex);
    ++s.starts;
    s.recorded.clear();
    mode_ = s.settings.mode;
    notice_ns_ = s.settings.notice_ns;
    annotations_ = s.settings.annotations;
    s.session = ++s.last_session;
    start_ = now_ns();
    status_ = libkineto::TraceStatus::RECORDING;
  }

  void stop() override {
    auto& s = sim();
    bool drop;
    {
      std::lock_guard<std::mutex> lock(s.mutex);
      drop = s.settings.drop_unfinished;
    }
    for (int core = 0; !drop && core < s.core_count(); ++core) sleep_until(s.core_until(core));
    {
      std::lock_guard<std::mutex> lock(s.mutex);
      ++s.stops;
      stop_ = now_ns();
      works_ = std::move(s.recorded);
      s.recorded.clear();
      settle(s);
      s.session = 0;
    }
    after_ = HostUse::sample();
    if (!config_.directory().empty()) {
      std::lock_guard<std::mutex> lock(s.mutex);
      s.last_directory =
          RuntimeCapture(config_, config_text_, before_, after_, works_).directory();
    }
    status_ = libkineto::TraceStatus::PROCESSING;
  }

  std::vector<std::string> errors() override { return {}; }
  void processTrace(libkineto::ActivityLogger&) override {}
  void processTrace(libkineto::ActivityLogger& logger, libkineto::getLinkedActivityCallback linked,
                    int64_t, int64_t) override {
    buffer_->gpuOpCount = 0;
    buffer_->span = libkineto::TraceSpan(start_, stop_, "__neuron_profiler__");
    if (mode_ == Mode::None) return;
    describe(logger);
    std::map<Range, std::pair<int64_t, int64_t>> ranges;
    for (const auto& work : works_) {
      const auto* op = linked((int32_t)work.external_id);
      runtime_call(logger, work, op);
      if (work.fate != Fate::Recorded) continue;
      bool shown = mode_ == Mode::Kernel ? kernel(logger, work, op) : window(logger, work, op);
      if (!shown) continue;
      ++buffer_->span.opCount;
      ++buffer_->gpuOpCount;
      if (!work.annotation_id) continue;
      auto [start, end] = shown_time(work);
      auto& range = ranges.try_emplace({work.core, work.stream, work.annotation_id}, start, end)
                        .first->second;
      range = {std::min(range.first, start), std::max(range.second, end)};
    }
    annotations(logger, linked, ranges);
  }

  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override { return nullptr; }
  std::vector<libkineto::ResourceInfo> getResourceInfos() override { return {}; }
  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override {
    return std::move(buffer_);
  }
  void pushCorrelationId(uint64_t id) override { t_operators.push(id, sim().session); }
  void popCorrelationId() override { t_operators.pop(sim().session); }
  void pushUserCorrelationId(uint64_t id) override { t_annotations.push(id, sim().session); }
  void popUserCorrelationId() override { t_annotations.pop(sim().session); }
  std::unordered_map<std::string, std::string> getMetadata() override {
    return {{"synthetic", quoted(kSynthetic)}};
  }
  std::string getDeviceProperties() override {
    if (mode_ != Mode::Kernel) return "";
    std::string list;
    for (int core = 0; core < sim().core_count(); ++core)
      list += (core ? ", " : "") +
          Json().field("id", (int64_t)core).field("name", "NeuronCore (simulated)").text();
    return list;
  }

 private:
  using Range = std::tuple<int, int, uint64_t>;  // core, stream, annotation

  std::set<ActivityType> types_;
  std::string config_text_;
  RuntimeConfig config_;
  HostUse before_, after_;
  Mode mode_ = Mode::None;
  bool annotations_ = true;
  int64_t notice_ns_ = 0, start_ = 0, stop_ = 0;
  std::vector<Work> works_;
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_ =
      std::make_unique<libkineto::CpuTraceBuffer>();

  // Decide what this session has seen, here and in the truth table.
  void settle(Simulator& s) {
    for (auto& work : works_) work.fate = work.end <= stop_ ? Fate::Recorded : Fate::Unfinished;
    for (auto work = s.works.rbegin(); work != s.works.rend(); ++work) {
      if (work->session && work->session < s.session) break;
      if (work->session == s.session)
        work->fate = work->end <= stop_ ? Fate::Recorded : Fate::Unfinished;
    }
    for (const auto& work : works_) s.unfinished += work.fate == Fate::Unfinished;
  }

  const std::string& name(int32_t id) {
    std::lock_guard<std::mutex> lock(sim().mutex);
    return sim().names[id];
  }

  libkineto::GenericTraceActivity& activity(ActivityType type, const std::string& name,
                                            int64_t start, int64_t end, int device, int resource,
                                            int id) {
    buffer_->emplace_activity(buffer_->span, type, name);
    auto& made = *buffer_->activities.back();
    made.startTime = start;
    made.endTime = end;
    made.device = device;
    made.resource = resource;
    made.id = id;
    return made;
  }

  void describe(libkineto::ActivityLogger& logger) {
    std::set<std::pair<int, int>> places;
    for (const auto& work : works_)
      if (work.fate == Fate::Recorded) places.insert({work.core, work.stream});
    int last = -1;
    for (auto [core, stream] : places) {
      if (core != last) {
        std::string label = "NeuronCore " + std::to_string(core) + " (simulated)";
        logger.handleDeviceInfo({core, libkineto::kExceedMaxPid + core, "python", label}, start_);
        last = core;
      }
      std::string label = "stream " + std::to_string(stream);
#if NEURON_SIM_TORCH >= 213
      logger.handleResourceInfo({stream, stream, core, label}, start_);
#else
      logger.handleResourceInfo({core, stream, stream, label}, start_);
#endif
    }
  }

  void runtime_call(libkineto::ActivityLogger& logger, const Work& work,
                    const libkineto::ITraceActivity* op) {
    if (!types_.count(ActivityType::PRIVATEUSE1_RUNTIME)) return;
    const char* call = work.kind == Kind::Execution ? "nrta_execute_schedule"
        : work.kind == Kind::FromDevice             ? "nrt_tensor_read"
        : work.kind == Kind::ToDevice               ? "nrt_tensor_write"
                                                    : "nrt_tensor_copy";
    auto& made = activity(ActivityType::PRIVATEUSE1_RUNTIME, call, work.call_start, work.call_end,
                          libkineto::processId(), work.thread, work.correlation);
    made.threadId = work.thread;
    made.linked = op;
    made.addMetadata("nrt_sequence_id", work.sequence);
    if (mode_ == Mode::Kernel) arrow(made, work, true);
    made.log(logger);
  }

  // Kernel events: exact busy time of the core.
  bool kernel(libkineto::ActivityLogger& logger, const Work& work,
              const libkineto::ITraceActivity* op) {
    auto type = work.copy() ? ActivityType::GPU_MEMCPY : ActivityType::CONCURRENT_KERNEL;
    if (!types_.count(type)) return false;
    auto& made = activity(type, name(work.neff), work.start, work.end, work.core, work.stream,
                          work.correlation);
    made.linked = op;
    made.addMetadata("device", work.core);
    made.addMetadata("stream", work.stream);
    made.addMetadata("nrt_sequence_id", work.sequence);
    if (work.copy()) made.addMetadata("bytes", work.bytes);
    arrow(made, work, false);
    made.log(logger);
    return true;
  }

  // Driver events: the window from queueing to completion, as the host sees it. Copies are calls
  // of the host into the runtime and have none.
  bool window(libkineto::ActivityLogger& logger, const Work& work,
              const libkineto::ITraceActivity* op) {
    if (work.copy() || !types_.count(ActivityType::PRIVATEUSE1_DRIVER)) return false;
    auto& made =
        activity(ActivityType::PRIVATEUSE1_DRIVER, name(work.op), work.call_end,
                 work.end + notice_ns_, work.core, work.stream, work.correlation);
    made.linked = op;
    made.addMetadata("nrt_sequence_id", work.sequence);
    made.addMetadataQuoted("neff_cache_key", name(work.key));
    made.log(logger);
    return true;
  }

  std::pair<int64_t, int64_t> shown_time(const Work& work) const {
    if (mode_ == Mode::Kernel) return {work.start, work.end};
    return {work.call_end, work.end + notice_ns_};
  }

  static void arrow(libkineto::GenericTraceActivity& made, const Work& work, bool start) {
    made.addMetadata("correlation", work.correlation);
    made.flow.id = (uint32_t)work.correlation;
    made.flow.type = libkineto::kLinkAsyncCpuGpu;
    made.flow.start = start;
  }

  // A range of the user's on the device: from the first to the last of its executions.
  void annotations(libkineto::ActivityLogger& logger,
                   const libkineto::getLinkedActivityCallback& linked,
                   const std::map<Range, std::pair<int64_t, int64_t>>& ranges) {
    if (!annotations_ || !types_.count(ActivityType::GPU_USER_ANNOTATION)) return;
    for (const auto& [place, time] : ranges) {
      auto [core, stream, id] = place;
      if (const auto* range = linked((int32_t)id))
        activity(ActivityType::GPU_USER_ANNOTATION, range->name(), time.first, time.second, core,
                 stream, (int)id)
            .log(logger);
    }
  }
};

class Profiler final : public libkineto::IActivityProfiler {
 public:
  const std::string& name() const override { return name_; }
  const std::set<ActivityType>& availableActivities() const override { return available_; }

  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      const std::set<ActivityType>& types, const libkineto::Config& config) override {
    auto& s = sim();
    std::lock_guard<std::mutex> lock(s.mutex);
    s.last_config = config.getCustomConfig();
    s.last_types.clear();
    for (auto type : types) s.last_types.push_back(libkineto::toString(type));
    // A request for the CPU alone names the PRIVATEUSE1 types too: they count as the CPU's.
    for (auto type : {ActivityType::CONCURRENT_KERNEL, ActivityType::GPU_MEMCPY,
                      ActivityType::GPU_MEMSET, ActivityType::GPU_USER_ANNOTATION})
      if (types.count(type)) return std::make_unique<Session>(types, s.last_config);
    ++s.refused;
    return nullptr;
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      int64_t, int64_t, const std::set<ActivityType>& types,
      const libkineto::Config& config) override {
    return configure(types, config);
  }

 private:
  std::string name_ = "__neuron_profiler__";
  std::set<ActivityType> available_ = {
      ActivityType::CONCURRENT_KERNEL,   ActivityType::GPU_MEMCPY,
      ActivityType::GPU_USER_ANNOTATION, ActivityType::PRIVATEUSE1_RUNTIME,
      ActivityType::PRIVATEUSE1_DRIVER};
};

// -- Python -----------------------------------------------------------------------------------

void install(bool kineto) {
  static bool done = false;
  TORCH_CHECK(!done, "the simulated Neuron is installed already");
  done = true;
  c10::SetAllocator(kNeuron, &allocator());
  static c10::impl::DeviceGuardImplRegistrar guard(kNeuron, new Guard);
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  torch::profiler::impl::registerPrivateUse1Methods(new Stubs);
  register_operators();
  if (!kineto) return;
  auto factory = []() -> std::unique_ptr<libkineto::IActivityProfiler> {
    return std::make_unique<Profiler>();
  };
#if NEURON_SIM_TORCH >= 212
  torch::profiler::impl::PrivateUse1ProfilerRegistry::instance().registerFactory(factory);
#else
  libkineto::api().registerProfilerFactory(factory);
#endif
}

void configure(const std::string& mode, int cores, int lnc, bool drop_unfinished,
               bool annotations, bool stubs,
               double kernel_us, double copy_us, double launch_us, double notice_us,
               size_t most_works, const std::map<std::string, double>& lengths_us,
               const std::string& instance) {
  static const std::map<std::string, Mode> modes = {
      {"none", Mode::None}, {"kernel", Mode::Kernel}, {"driver", Mode::Driver}};
  TORCH_CHECK(modes.count(mode), "mode is none, kernel or driver, not ", mode);
  TORCH_CHECK(1 <= cores && cores <= kMostCores, "cores: 1 to ", kMostCores);
  TORCH_CHECK(lnc == 1 || lnc == 2, "lnc: 1 or 2");
  auto ns = [](double us) { return (int64_t)std::llround(us * 1000); };
  std::lock_guard<std::mutex> lock(sim().mutex);
  auto& settings = sim().settings;
  settings.mode = modes.at(mode);
  settings.cores = cores;
  settings.lnc = lnc;
  settings.drop_unfinished = drop_unfinished;
  settings.annotations = annotations;
  settings.stubs = stubs;
  settings.kernel_ns = ns(kernel_us);
  settings.copy_ns = ns(copy_us);
  settings.launch_ns = ns(launch_us);
  settings.notice_ns = ns(notice_us);
  settings.most_works = most_works;
  settings.lengths.clear();
  for (const auto& [name, us] : lengths_us) settings.lengths[name] = ns(us);
  settings.instance = instance;
}

py::list truth() {
  static const char* const kinds[] = {"kernel", "HtoD", "DtoH", "DtoD"};
  static const char* const fates[] = {"outside", "recording", "recorded", "unfinished"};
  std::lock_guard<std::mutex> lock(sim().mutex);
  const auto& names = sim().names;
  py::list rows;
  for (const auto& work : sim().works) {
    py::dict row;
    row["operator"] = names[work.op];
    row["kernel"] = names[work.neff];
    row["kind"] = kinds[(int)work.kind];
    row["status"] = fates[(int)work.fate];
    row["session"] = work.session;
    row["core"] = work.core;
    row["stream"] = work.stream;
    row["thread"] = work.thread;
    row["call_start_ns"] = work.call_start;
    row["call_end_ns"] = work.call_end;
    row["start_ns"] = work.start;
    row["end_ns"] = work.end;
    row["duration_ns"] = work.end - work.start;
    row["bytes"] = work.bytes;
    row["correlation"] = work.correlation;
    row["sequence_id"] = work.sequence;
    row["exec_id"] = work.exec_id;
    rows.append(row);
  }
  return rows;
}

py::dict counters() {
  auto& s = sim();
  std::lock_guard<std::mutex> lock(s.mutex);
  py::list syncs;
  for (int core = 0; core < s.settings.cores; ++core) syncs.append(s.cores[core].syncs);
  py::dict result;
  result["syncs"] = syncs;
  result["launches"] = s.launches;
  result["starts"] = s.starts;
  result["stops"] = s.stops;
  result["refused"] = s.refused;
  result["unfinished"] = s.unfinished;
  result["truth_forgotten"] = s.works_forgotten;
  result["last_types"] = s.last_types;
  result["last_config"] = s.last_config;
  result["last_directory"] = s.last_directory;
  return result;
}

py::dict memory(int core) {
  sim().check_core(core);
  std::lock_guard<std::mutex> lock(sim().mutex);
  py::dict result;
  result["allocated"] = sim().cores[core].allocated;
  result["peak"] = sim().cores[core].peak;
  result["reserved"] = sim().cores[core].reserved;
  return result;
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  using py::arg;
  m.doc() = kSynthetic;
  m.def("install", &install, arg("kineto"));
  m.def("configure", &configure, arg("mode"), arg("cores"), arg("lnc"), arg("drop_unfinished"),
        arg("annotations"), arg("stubs"), arg("kernel_us"), arg("copy_us"), arg("launch_us"), arg("notice_us"),
        arg("most_works"), arg("lengths_us"), arg("instance"));
  m.def("truth", &truth);
  m.def("counters", &counters);
  m.def("memory", &memory, arg("core"));
  m.def("reset_peak", [](int core) { allocator().resetPeakStats((c10::DeviceIndex)core); });
  m.def("device_count", [] { return sim().core_count(); });
  m.def("current_device", [] { return (int)t_core; });
  m.def("set_device", [](int core) {
    sim().check_core(core);
    t_core = (c10::DeviceIndex)core;
  });
  m.def(
      "synchronize",
      [](int core) {
        if (core < 0) core = t_core;
        sim().check_core(core);
        sim().synchronize(core);
      },
      py::call_guard<py::gil_scoped_release>());
  m.def("operators_run_as_a_whole", &operators_run_as_a_whole);
}
