//! Where decoded values go, one after the other in the order in which they stand: no tree of values is ever made.

/// How a list between brackets looks where it is a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    /// What is in it.
    Of,
    /// What is not in it.
    AllBut,
}

/// What came of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallResult<'a> {
    /// A number.
    Number(i64),
    /// An address, or bits.
    Hex(u64),
    /// A mode.
    Octal(u64),
    /// A descriptor, and what it is where that is known.
    Descriptor(i32, Option<&'a [u8]>),
    /// An error: its number, name and text; the name is empty where it has none.
    Error(i32, &'static str, &'static str),
    /// The kernel makes the call once more: its word for that, and what it means.
    Again(&'static str, &'static str),
    /// Nobody saw it.
    Unknown,
}

/// Takes values in the order in which they stand.
pub trait Out {
    /// The arguments begin.
    fn arguments(&mut self);
    /// One of them: the how manieth. `shown`: even who prints no names prints this one.
    fn argument(&mut self, index: usize, name: &'static str, shown: bool);

    /// A structure begins.
    fn open(&mut self);
    /// Its next field.
    fn field(&mut self, name: &'static str);
    /// It ends; `more`: not all of it was shown.
    fn close(&mut self, more: bool);
    /// A list begins.
    fn open_list(&mut self);
    /// Its next item.
    fn item(&mut self);
    /// It ends; `more`: not all of it was shown.
    fn close_list(&mut self, more: bool);
    /// It ends because what comes next could not be read.
    fn cut_list(&mut self, at: u64);
    /// A set begins.
    fn open_set(&mut self, set: Set);
    /// Its next element.
    fn element(&mut self);
    /// It ends.
    fn close_set(&mut self, set: Set);
    /// A value that the call changes begins: what it was.
    fn open_change(&mut self);
    /// What it became.
    fn became(&mut self);
    /// It ends.
    fn close_change(&mut self);
    /// The same without brackets.
    fn open_bare_change(&mut self);
    /// It ends.
    fn close_bare_change(&mut self);

    /// A signed number.
    fn number(&mut self, value: i64);
    /// An unsigned one.
    fn unsigned(&mut self, value: u64);
    /// One that is read as hexadecimal.
    fn hex(&mut self, value: u64);
    /// One that is read as octal: a mode.
    fn octal(&mut self, value: u64);
    /// An address; 0 is none.
    fn address(&mut self, value: u64);
    /// A number that has a name.
    fn name(&mut self, name: &str);
    /// One of a family that has none.
    fn other(&mut self, value: u64, family: &'static str);
    /// Bits begin.
    fn open_bits(&mut self);
    /// Some of them, by name.
    fn bit(&mut self, name: &str);
    /// Some that have no name.
    fn bit_hex(&mut self, value: u64);
    /// Some that are read as octal.
    fn bit_octal(&mut self, value: u64);
    /// Some that are a number.
    fn bit_number(&mut self, value: u64);
    /// Some that are a number of a family, and have no name there.
    fn bit_other(&mut self, value: u64, family: &'static str);
    /// They end.
    fn close_bits(&mut self);

    /// Bytes, of which perhaps more follow than are shown.
    fn bytes(&mut self, bytes: &[u8], more: bool);
    /// Bytes that mean nothing to anybody: random ones.
    fn raw_bytes(&mut self, bytes: &[u8], more: bool);
    /// A name that the kernel keeps apart from paths: an abstract socket's.
    fn abstract_name(&mut self, bytes: &[u8]);
    /// A signal in a set of them.
    fn signal(&mut self, number: i32);
    /// How a process ended, as wait has it.
    fn status(&mut self, status: u32);
    /// Groups of a netlink address: eight digits.
    fn mask(&mut self, value: u32);
    /// A number times 1024.
    fn kibi(&mut self, value: u64);
    /// A descriptor, and what it is where that is known.
    fn descriptor(&mut self, fd: i32, what: Option<&[u8]>);
    /// The directory that relative paths begin at, and what it is where that is known.
    fn here(&mut self, what: Option<&[u8]>);
    /// A device's numbers.
    fn device(&mut self, major: u32, minor: u32);
    /// The value that follows is what this function returns for what is shown.
    fn wrap(&mut self, function: &'static str);
    /// The end of that.
    fn unwrap(&mut self);
    /// An IPv6 address in a field.
    fn inet6(&mut self, field: &'static str, text: &[u8]);
    /// Of a list there: how many of what it has; `None`: its end could not be read.
    fn counted(&mut self, at: u64, count: Option<usize>, what: &'static str);
    /// What a person may want to know; no part of the values.
    fn comment(&mut self, text: &[u8]);
    /// A value that only the end of the call would tell, and it is not known.
    fn unknown(&mut self);

    /// The arguments end, and this came of the call.
    fn returned(&mut self, what: CallResult);
    /// A value made of parts begins: items follow, which this function would put together.
    fn open_parts(&mut self, function: &'static str);
    /// It ends.
    fn close_parts(&mut self);
    /// The time was over.
    fn timeout(&mut self);
    /// What the result means begins: values follow.
    fn open_note(&mut self);
    /// The next one, and what it is.
    fn note(&mut self, name: &'static str, shown: bool);
    /// It ends.
    fn close_note(&mut self);
}
