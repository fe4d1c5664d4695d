// The one kernel behind every op: key, lookup, execute, wrap.
#include <ATen/core/TensorBase.h>
#include <ATen/native/Resize.h>
#include <c10/core/TensorImpl.h>

#include "device/allocator.h"
#include "device/generator.h"
#include "device/stream.h"
#include "dispatch/deferred.h"
#include "dispatch/launch_lock.h"
#include "dispatch/operator.h"
#include "dispatch/padding.h"
#include "dispatch/parameters.h"
#include "dispatch/python_call.h"
#include "dispatch/replay.h"
#include "errors.h"
#include "gil.h"
#include "python_ref.h"
#include "runtime/bridge.h"
#include "runtime/settings.h"

#include <optional>

namespace neuron::dispatch {
namespace {

// Memory nobody wrote is about to be read: give it zeros.
void materialise(const SlotLeaf& slot) {
  TORCH_CHECK(slot.buffer->handle == nullptr || (slot.buffer->dtype == slot.dtype && slot.buffer->numel == slot.numel),
              "a tensor's storage was written as another dtype by another thread while an op on it was started. "
              "Let one thread write a tensor at a time.");
  if (slot.buffer->handle == nullptr) {
    slot.buffer->replace(runtime::zeros(slot.dtype, slot.numel, slot.buffer->device), slot.dtype, slot.numel);
  }
}

Ref argument_tuple(const CallView& call) {
  Py_ssize_t count = call.params.empty() ? 0 : 1;
  for (const SlotLeaf& slot : call.slots) {
    count += slot.present;
  }
  Ref tuple(PyTuple_New(count));
  Py_ssize_t i = 0;
  for (const SlotLeaf& slot : call.slots) {
    if (slot.present) {
      materialise(slot);
      PyTuple_SET_ITEM(tuple.get(), i++, Py_NewRef(slot.buffer->handle));
    }
  }
  if (!call.params.empty()) {
    PyTuple_SET_ITEM(tuple.get(), i, parameter_array(call.params, call.device));
  }
  return tuple;
}

// The arguments of a padded program: see InputSpec.
Ref padded_tuple(const Entry& entry, const CallView& call) {
  Ref tuple(PyTuple_New(static_cast<Py_ssize_t>(entry.inputs.size() + 1)));
  Py_ssize_t i = 0;
  for (const InputSpec& input : entry.inputs) {
    const TensorLeaf* leaf = input.tensor < 0 ? nullptr : &call.tensors[static_cast<size_t>(input.tensor)];
    const SlotLeaf& slot = call.slots[static_cast<size_t>(leaf == nullptr ? input.slot : leaf->slot)];
    materialise(slot);
    const bool as_it_is = leaf == nullptr || (slot.numel == input.capacity && leaf->tensor.storage_offset() == 0);
    PyTuple_SET_ITEM(
        tuple.get(), i++,
        as_it_is ? Py_NewRef(slot.buffer->handle) : padded_copy(leaf->tensor, input.capacity, entry.poison));
  }
  PyTuple_SET_ITEM(tuple.get(), i, parameter_array(call.params, call.device));
  return tuple;
}

// Storages for the fresh results, before anything runs: a launch that does not fit the memory limit
// must fail while the arguments it would donate are still whole.
using Storages = c10::SmallVector<c10::intrusive_ptr<c10::StorageImpl>, 4>;

Storages reserve_results(const Entry& entry, c10::DeviceIndex device) {
  Storages storages;
  for (const ResultSpec& result : entry.results) {
    const bool fresh = result.kind == ResultKind::Fresh;
    const size_t nbytes = static_cast<size_t>(result.storage_numel) * c10::elementSize(result.dtype);
    storages.push_back(fresh ? new_storage(nbytes, device) : c10::intrusive_ptr<c10::StorageImpl>());
  }
  return storages;
}

at::Tensor fresh_tensor(const ResultSpec& result, PyObject* array, c10::intrusive_ptr<c10::StorageImpl> storage,
                        const CallView& call, bool like_first, bool padded) {
  DeviceBuffer::of(*storage).replace(array, result.dtype, result.storage_numel);
  if (padded) {  // torch sees the storage that the tensor needs
    storage->set_nbytes(static_cast<size_t>(c10::multiply_integers(result.sizes)) * c10::elementSize(result.dtype));
  }
  auto impl = c10::make_intrusive<c10::TensorImpl>(c10::Storage(std::move(storage)),
                                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                                   c10::scalarTypeToTypeMeta(result.dtype));
  if (like_first) {
    // As on the CPU: the strides of dimensions of size 1 are those of the format.
    const at::Tensor& first = call.tensors[0].tensor;
    if (first.is_contiguous()) {
      impl->set_sizes_contiguous(first.sizes());
    } else {
      impl->set_sizes_and_strides(first.sizes(), first.strides());
    }
  } else {
    impl->set_sizes_and_strides(result.sizes, result.strides);
  }
  return at::Tensor(std::move(impl));
}

// A data-dependent number of rows: waits for the count and cuts the tensor to it, and its storage as torch sees it,
// which nested tensors take the measure of. The array behind stays as long as it was made. Columns lie one behind the
// other.
void cut_rows(at::Tensor& tensor, PyObject* count, bool columns) {
  const int64_t rows = *static_cast<const int64_t*>(runtime::host_pointer(count));
  c10::SmallVector<int64_t, 5> sizes(tensor.sizes().begin(), tensor.sizes().end());
  sizes[0] = rows;
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (columns) {
    impl->set_sizes_and_strides(sizes, {1, rows});
  } else {
    impl->set_sizes_contiguous(sizes);
  }
  impl->unsafe_storage().unsafeGetStorageImpl()->set_nbytes(static_cast<size_t>(impl->numel()) * tensor.itemsize());
}

// The results of one execution, by index; writes are stored in their slots at once.
std::vector<at::Tensor> take_results(const Entry& entry, PyObject* arrays, CallView& call, Storages storages) {
  std::vector<at::Tensor> tensors(entry.results.size());
  for (size_t i = 0; i < entry.results.size(); ++i) {
    const ResultSpec& result = entry.results[i];
    PyObject* array = PySequence_Fast_GET_ITEM(arrays, static_cast<Py_ssize_t>(i));
    if (result.kind == ResultKind::Fresh) {
      tensors[i] = fresh_tensor(result, Py_NewRef(array), std::move(storages[i]), call, entry.like_first, entry.padded);
    } else if (result.kind == ResultKind::Write) {
      call.slots[static_cast<size_t>(result.slot)].buffer->replace(Py_NewRef(array), result.dtype,
                                                                   result.storage_numel);
    }
  }
  return tensors;
}

// What may wait or raise, after every result has its place: row counts and checks.
void take_counts_and_checks(const std::shared_ptr<const Entry>& entry, PyObject* arrays, const CallView& call,
                            const Operator& op, std::vector<at::Tensor>& tensors) {
  for (size_t i = 0; i < entry->results.size(); ++i) {
    const ResultSpec& result = entry->results[i];
    PyObject* array = PySequence_Fast_GET_ITEM(arrays, static_cast<Py_ssize_t>(i));
    if (result.kind == ResultKind::Count || result.kind == ResultKind::ColumnCount) {
      cut_rows(tensors[static_cast<size_t>(result.slot)], array, result.kind == ResultKind::ColumnCount);
    } else if (result.kind == ResultKind::Check) {
      defer_check(call.device, Py_NewRef(array), entry, op.name);
    }
  }
}

// A failed execution has consumed donated arguments: those storages are left unwritten.
void drop_donated(const Entry& entry, CallView& call) {
  for (const ResultSpec& result : entry.results) {
    if (result.kind == ResultKind::Write) {
      DeviceBuffer* buffer = call.slots[static_cast<size_t>(result.slot)].buffer;
      if (runtime::is_deleted(buffer->handle)) {
        buffer->replace(nullptr, c10::ScalarType::Undefined, 0);
      }
    }
  }
}

PyObject* const_name(const char* text) { return PyUnicode_InternFromString(text); }

// A launched program: its completion token and its result arrays.
struct Launched {
  PyObject* token;  // given to the stream
  Ref arrays;
};

Launched launch(const Entry& entry, CallView& call, const Operator& op) {
  static PyObject* with_tokens = [] {
    PyObject* name = const_name("with_tokens");
    return PyTuple_Pack(1, name);  // interning never gives up the GIL, so this static cannot deadlock
  }();
  static PyObject* consume_token = const_name("consume_token");
  static PyObject* consume_results = const_name("consume_with_handlers");

  const Ref arguments = entry.padded ? padded_tuple(entry, call) : argument_tuple(call);
  PyObject* const call_args[] = {arguments.get(), Py_True};
  const Ref ran(PyObject_Vectorcall(entry.execute, call_args, 1, with_tokens));
  if (!ran) {
    drop_donated(entry, call);
    runtime::throw_execution_error(op.name);
  }
  PyObject* const self_args[] = {ran.get(), entry.handlers};
  PyObject* token = PyObject_VectorcallMethod(consume_token, self_args, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
  if (token == nullptr) {
    throw_python_error();
  }
  Ref arrays(PyObject_VectorcallMethod(consume_results, self_args, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
  if (!arrays) {
    Py_DECREF(token);
    throw_python_error();
  }
  return {token, std::move(arrays)};
}

std::vector<at::Tensor> execute(const std::shared_ptr<const Entry>& entry, CallView& call, const Operator& op) {
  Storages storages = reserve_results(*entry, call.device);
  const Gil gil;
  std::optional<LaunchLock> lock(std::in_place);
  const Launched launched = launch(*entry, call, op);
  auto tensors = take_results(*entry, launched.arrays.get(), call, std::move(storages));
  lock.reset();
  note_work(call.device, launched.token, op.name.c_str());
  take_counts_and_checks(entry, launched.arrays.get(), call, op, tensors);
  if (runtime::launch_blocking()) {
    synchronize_device(call.device);
  }
  return tensors;
}

c10::IValue make_return(const ReturnSpec& spec, const std::vector<at::Tensor>& results, const torch::jit::Stack& stack,
                        size_t count) {
  switch (spec.kind) {
    case ReturnSpec::Kind::Result:
      return results[static_cast<size_t>(spec.index)];
    case ReturnSpec::Kind::Argument:
      return torch::jit::peek(stack, static_cast<size_t>(spec.index), count);
    case ReturnSpec::Kind::List: {
      c10::List<at::Tensor> list;
      list.reserve(spec.items.size());
      for (const ReturnSpec& item : spec.items) {
        list.push_back(make_return(item, results, stack, count).toTensor());
      }
      return list;
    }
    case ReturnSpec::Kind::Integer:
      return spec.index;
    case ReturnSpec::Kind::ViewOfResult:
      return view_of(results[static_cast<size_t>(spec.index)], spec);
    case ReturnSpec::Kind::ViewOfArgument:
      return view_of(torch::jit::peek(stack, static_cast<size_t>(spec.index), count).toTensor(), spec);
    case ReturnSpec::Kind::None:
      break;
  }
  return at::Tensor();
}

void push_returns(const Entry& entry, const std::vector<at::Tensor>& results, const c10::FunctionSchema& schema,
                  torch::jit::Stack* stack) {
  const size_t count = schema.arguments().size();
  c10::SmallVector<c10::IValue, 2> returned;
  for (size_t i = 0; i < schema.returns().size(); ++i) {
    returned.push_back(make_return(entry.returns[i], results, *stack, count));
  }
  torch::jit::drop(*stack, count);
  for (c10::IValue& value : returned) {
    stack->push_back(std::move(value));
  }
}

// out= arguments of another shape grow first, with torch's warning.
void resize_outputs(const std::vector<Resolution::Resize>& resizes, torch::jit::Stack* stack, size_t count) {
  for (const auto& resize : resizes) {
    at::Tensor out = torch::jit::peek(*stack, static_cast<size_t>(resize.position), count).toTensor();
    at::native::resize_output(out, resize.sizes);
    out.unsafeGetTensorImpl()->set_sizes_and_strides(resize.sizes, resize.strides);
  }
}

std::shared_ptr<const Entry> entry_of(Operator& op, const c10::FunctionSchema& schema, torch::jit::Stack* stack,
                                      CallView& call) {
  if (auto entry = op.find(call.key)) {
    return entry;
  }
  const NoGil unlocked;  // another thread may hold `resolving` while it waits for the GIL
  const std::lock_guard<std::mutex> lock(op.resolving);
  if (auto entry = op.find(call.key)) {
    return entry;
  }
  Resolution resolution = resolve(op, schema, *stack, call);
  if (resolution.entry == nullptr) {
    resize_outputs(resolution.resizes, stack, schema.arguments().size());
    return nullptr;
  }
  op.remember(call.key, resolution.entry);
  return resolution.entry;
}

// The random state of this call goes into the last two parameters.
void draw_random_state(const Entry& entry, CallView& call, const Operator& op) {
  TORCH_CHECK(entry.rng_blocks == 0 || !runtime::random_on_cpu(), op.name,
              " draws random numbers that CPU torch has not got: it has no such op. TORCH_NEURONX_RNG=cpu or "
              "debug.cpu_random() asks for the CPU's numbers. Call the op outside that mode, or without dropout.");
  const auto [seed, offset] = generator_for(call.generator, call.device).philox_engine_inputs(entry.rng_blocks);
  call.params[static_cast<size_t>(call.rng_param)] = static_cast<int64_t>(seed);
  call.params[static_cast<size_t>(call.rng_param) + 1] = static_cast<int64_t>(offset);
}

// Each is followed by a retry with the new key: not all out= arguments are found at once.
constexpr int kMostResizes = 6;

}  // namespace

void run_boxed(const c10::OperatorHandle& handle, Operator& op, torch::jit::Stack* stack) {
  run_call(handle.schema(), op, stack);
}

// A view without autograd's knowledge: whoever asked for the program keeps account of aliases.
at::Tensor view_of(const at::Tensor& base, const ReturnSpec& spec) {
  auto impl = c10::make_intrusive<c10::TensorImpl>(c10::Storage(base.storage()),
                                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), base.dtype());
  impl->set_sizes_and_strides(spec.sizes, spec.strides, base.storage_offset() + spec.offset);
  return at::Tensor(std::move(impl));
}

std::vector<at::Tensor> run_entry(const std::shared_ptr<const Entry>& entry, CallView& call, Operator& op) {
  if (call.rng_param >= 0) {
    draw_random_state(*entry, call, op);
  }
  call.params.append(entry->sizes.begin(), entry->sizes.end());
  auto results = execute(entry, call, op);
  count_native(op);
  return results;
}

void run_call(const c10::FunctionSchema& schema, Operator& op, torch::jit::Stack* stack) {
  run_recorded(schema, op, stack, nullptr);
}

void run_recorded(const c10::FunctionSchema& schema, Operator& op, torch::jit::Stack* stack, Replay* replay) {
  if (runtime::in_bad_fork()) [[unlikely]] {
    runtime::ensure_initialized();  // raises: the engine's threads are not here, and waiting for them never ends
  }
  for (int attempt = 0; attempt < kMostResizes; ++attempt) {
    CallView call;
    view_call(op, schema, stack, call);
    if (call.device < 0) {
      call.device = runtime::current_device();
    }
    if (call.refusal != nullptr) {
      return run_on_host(op, schema, stack, call.refusal);
    }
    if (op.drawn_on_cpu && runtime::random_on_cpu()) [[unlikely]] {
      generator_for(call.generator, call.device);  // raises for another device's
      return draw_on_cpu(op, schema, stack);
    }
    const std::shared_ptr<const Entry> entry = entry_of(op, schema, stack, call);
    if (entry == nullptr) {
      continue;
    }
    check_sharing(op, call);
    if (entry->fallback) {
      return run_on_host(op, schema, stack, entry->reason);
    }
    if (replay != nullptr) {
      replay->record(entry, call, *stack, schema.arguments().size());
    }
    const auto results = run_entry(entry, call, op);
    push_returns(*entry, results, schema, stack);
    return;
  }
  TORCH_CHECK(
      false, op.name,
      ": an out= argument still has the wrong shape after it was resized; give it a tensor of the result's shape");
}

}  // namespace neuron::dispatch
