//! What a call means: registers and memory in, typed arguments out. It reads through [`Memory`] alone and prints nothing:
//! whoever wants text or JSON is an [`Out`].

/// A stopped task's memory, and what the kernel says of its descriptors.
pub trait Memory {
    /// Reads: how many bytes there were from `at` on.
    fn read(&self, at: u64, into: &mut [u8]) -> usize;

    /// What a descriptor is, as `/proc/PID/fd` names it. None: not open, or nobody asked for that.
    fn descriptor(&self, fd: i32) -> Option<Vec<u8>>;

    /// The directory that relative paths begin at.
    fn directory(&self) -> Option<Vec<u8>>;
}

/// Takes values in the order in which they stand.
pub trait Out {
    /// An argument or field begins. `name` is for whoever prints names.
    fn field(&mut self, name: &'static str);
    /// A signed number.
    fn number(&mut self, value: i64);
    /// An unsigned one.
    fn unsigned(&mut self, value: u64);
    /// One that is read as hexadecimal: an address, a mask.
    fn hex(&mut self, value: u64);
    /// One that is read as octal: a mode.
    fn octal(&mut self, value: u64);
    /// A name for `value`; none is known where it is empty.
    fn named(&mut self, name: &str, value: u64);
    /// Bits: the names of those that have one, and the rest.
    fn flags(&mut self, names: &[&str], rest: u64);
    /// Bytes, of which perhaps more follow than are shown.
    fn bytes(&mut self, bytes: &[u8], more: bool);
    /// A path.
    fn path(&mut self, bytes: &[u8], more: bool);
    /// A descriptor, and what it is, where that is known.
    fn descriptor(&mut self, fd: i32, what: Option<&[u8]>);
    /// A null pointer.
    fn null(&mut self);
    /// Memory that could not be read: the address stays.
    fn unreadable(&mut self, at: u64);
    /// A value that only the end of the call would tell, and it is not known.
    fn unknown(&mut self);
    /// A structure begins.
    fn open(&mut self);
    /// It ends; `more`: not all of it was shown.
    fn close(&mut self, more: bool);
    /// A list begins.
    fn open_list(&mut self);
    /// It ends.
    fn close_list(&mut self, more: bool);
}
