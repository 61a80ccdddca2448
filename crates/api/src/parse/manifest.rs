//! Every watched kind as the API writes it: where its list is, its type, and how it is parsed.

/// `Kind(type) "path of the list" => parser`. A parser returns the object, and pushes what it had to leave out.
macro_rules! manifests {
    ($($kind:ident($wire:ty) $path:literal => $parse:expr,)*) => {
        /// An object of a watched kind, as the API writes it.
        #[expect(clippy::large_enum_variant, reason = "parsed and dropped at once")]
        #[derive(Debug, Clone)]
        pub enum Manifest {
            $($kind($wire),)*
        }

        impl Manifest {
            pub fn read<'de, D: serde::Deserializer<'de>>(kind: Kind, from: D) -> Result<Self, D::Error> {
                use serde::Deserialize;
                match kind {
                    $(Kind::$kind => <$wire>::deserialize(from).map(Self::$kind),)*
                }
            }

            pub fn metadata(&self) -> &ObjectMeta {
                match self {
                    $(Self::$kind(object) => &object.metadata,)*
                }
            }

            pub fn metadata_mut(&mut self) -> &mut ObjectMeta {
                match self {
                    $(Self::$kind(object) => &mut object.metadata,)*
                }
            }

            /// Values that are left out are explained in `warnings`, with the name of the object.
            pub fn parse(&self, warnings: &mut Vec<String>) -> Result<Object, ParseError> {
                type Parse<T> = fn(&T, &mut Vec<String>) -> Result<Object, ParseError>;
                match self {
                    $(Self::$kind(object) => {
                        let parse: Parse<$wire> = $parse;
                        parse(object, warnings)
                    })*
                }
            }
        }

        /// Where the API lists the objects of a kind.
        pub const fn path(kind: Kind) -> &'static str {
            match kind {
                $(Kind::$kind => $path,)*
            }
        }
    };
}
